"""Layers of every kind and of awkward sizes, each a few nodes of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from tests.tiny_models import Builder

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Follower:
    """A node after the root, with the shape of its other operand if it has one, which may be a weight."""

    kind: str
    operand: Shape | None = None
    weight: bool = False


@dataclass
class Cases:
    """Collects cases; the root node of each has the case's name."""

    builder: Builder = field(default_factory=Builder)
    inputs: list[tuple[str, Shape]] = field(default_factory=list)
    outputs: list[tuple[str, Shape]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def source(self, name: str, shape: Shape) -> str:
        """An input of the model."""
        self.inputs.append((name, shape))
        return name

    def finish(self, name: str, value: str, shape: Shape, followers: Sequence[Follower] = ()) -> None:
        """What follows the root of the case ``name``, and an output of the model, which ends it."""
        for index, follower in enumerate(followers):
            others: list[str] = []
            if follower.operand is not None:
                given = f"{name}.{index}"
                others = [
                    self.builder.weight(*follower.operand) if follower.weight else self.source(given, follower.operand)
                ]
            value = self.builder.op(follower.kind, f"{name}.{index}.{follower.kind}", value, *others)
        self.outputs.append((value, shape))
        self.names.append(name)

    def convolution(
        self,
        name: str,
        image: Shape,
        channels: int,
        kernel: Shape = (3, 3),
        *,
        pads: Sequence[int] | None = None,
        stride: int | Shape = 1,
        dilation: int | Shape = 1,
        groups: int = 1,
        bias: bool = True,
        activation: str = "Relu",
        residual: bool = False,
        followers: Sequence[Follower] = (),
    ) -> None:
        """A convolution with what may follow it."""
        strides, dilations = (each if isinstance(each, tuple) else (each, each) for each in (stride, dilation))
        edges = [(size - 1) // 2 * step for size, step in zip(kernel, dilations, strict=True)]
        pads = [*edges, *edges] if pads is None else list(pads)
        weights = [self.builder.weight(channels, image[1] // groups, *kernel)]
        weights += [self.builder.weight(channels)] if bias else []
        value = self.builder.op(
            "Conv", name, self.source(f"{name}.x", image), *weights,
            pads=pads, strides=strides, dilations=dilations, group=groups,
        )  # fmt: skip
        sizes = [
            (image[2 + axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis]
            + 1
            for axis in range(2)
        ]
        shape = (image[0], channels, *sizes)
        standard = [Follower("Add", shape)] if residual else []
        standard += [Follower(activation)] if activation else []
        self.finish(name, value, shape, [*standard, *followers])

    def biased(self, name: str, image: Shape, channels: int) -> None:
        """A convolution by one pixel whose bias is an activation, to which it adds its sums."""
        bias = self.builder.op("Relu", f"{name}.positive", self.source(f"{name}.bias", (channels,)))
        filters = self.builder.weight(channels, image[1], 1, 1)
        value = self.builder.op("Conv", name, self.source(f"{name}.x", image), filters, bias)
        self.finish(name, value, (image[0], channels, *image[2:]))

    def product(
        self,
        name: str,
        left: Shape,
        right: Shape,
        *,
        weight: bool = True,
        bias: bool = True,
        gelu: bool = False,
        followers: Sequence[Follower] = (),
    ) -> None:
        """A matrix product with what may follow it."""
        given = self.source(f"{name}.x", left)
        other = self.builder.weight(*right) if weight else self.source(f"{name}.y", right)
        value = self.builder.op("MatMul", name, given, other)
        if bias:
            value = self.builder.op("Add", f"{name}.bias", value, self.builder.weight(right[-1]))
        if gelu:
            half = self.builder.constant(np.array(0.7, np.float32))
            erf = self.builder.op("Erf", f"{name}.erf", self.builder.op("Mul", f"{name}.half", value, half))
            value = self.builder.op("Mul", f"{name}.gelu", value, erf)
        self.finish(name, value, (*left[:-1], right[-1]), followers)

    def gemm(self, name: str, rows: int, inner: int, columns: int) -> None:
        """A product by a weight stored ``[N, K]``."""
        weight, bias = self.builder.weight(columns, inner), self.builder.weight(columns)
        value = self.builder.op("Gemm", name, self.source(f"{name}.x", (rows, inner)), weight, bias, transB=1)
        self.finish(name, value, (rows, columns))

    def pool(self, name: str, kind: str, image: Shape, result: Shape, **attributes: object) -> None:
        """A pooling."""
        self.finish(name, self.builder.op(kind, name, self.source(f"{name}.x", image), **attributes), result)

    def sliced(
        self,
        name: str,
        image: Shape,
        cuts: Sequence[tuple[int, int, int, int]],
        others: Sequence[int] = (),
        followers: Sequence[Follower] = (),
    ) -> None:
        """A slice of a slice of an image, each given by an axis, first, end and step; concatenated with other images of
        so many channels each."""
        value, shape = self.source(f"{name}.x", image), list(image)
        for number, (axis, first, end, step) in enumerate(cuts):
            bounds = [self.builder.constant(np.array([each])) for each in (first, end, axis, step)]
            value = self.builder.op("Slice", f"{name}.{number}.slice" if number else name, value, *bounds)
            shape[axis] = len(range(first, end, step))
        if others:
            sizes = [(shape[0], other, *shape[2:]) for other in others]
            given = [self.source(f"{name}.other{number}", size) for number, size in enumerate(sizes)]
            value = self.builder.op("Concat", f"{name}.joined", given[0], value, *given[1:], axis=1)
            shape[1] += sum(others)
        self.finish(name, value, tuple(shape), followers)

    def enlarged(
        self,
        name: str,
        image: Shape,
        factors: Shape,
        others: Sequence[int] = (),
        followers: Sequence[Follower] = (),
        positions: tuple[str, str] = ("asymmetric", "floor"),
    ) -> None:
        """An image enlarged to the nearest pixels, concatenated with other images of so many channels each.

        ``positions`` says how pixels are found, and how they are rounded.
        """
        batches, channels, height, width = image
        result = batches, channels, height * factors[0], width * factors[1]
        sizes = self.builder.constant(np.array(result))
        value = self.builder.op(
            "Resize", name, self.source(f"{name}.x", image), "", "", sizes,
            mode="nearest", coordinate_transformation_mode=positions[0], nearest_mode=positions[1],
        )  # fmt: skip
        if others:
            given = [
                self.source(f"{name}.other{number}", (batches, other, *result[2:]))
                for number, other in enumerate(others)
            ]
            value = self.builder.op("Concat", f"{name}.joined", given[0], value, *given[1:], axis=1)
        self.finish(name, value, (batches, channels + sum(others), *result[2:]), followers)

    def joined(self, name: str, image: Shape, parts: Sequence[int], followers: Sequence[Follower] = ()) -> None:
        """A concatenation of images of so many channels each; ``image`` has those of the result."""
        batches, _, height, width = image
        given = [self.source(f"{name}.x{index}", (batches, part, height, width)) for index, part in enumerate(parts)]
        self.finish(name, self.builder.op("Concat", name, *given, axis=1), image, followers)

    def rows(self, name: str, kind: str, shape: Shape, weights: int = 0) -> None:
        """What is computed along the last dimension."""
        given = [self.builder.weight(shape[-1]) for _ in range(weights)]
        self.finish(name, self.builder.op(kind, name, self.source(f"{name}.x", shape), *given, axis=-1), shape)

    def model(self) -> ModelProto:
        """All cases in one model."""
        return self.builder.model(self.inputs, self.outputs)


def add_convolutions(cases: Cases) -> None:
    """Convolutions without groups."""
    cases.convolution("conv3x3", (1, 16, 12, 12), 32)
    cases.convolution("conv3x3_residual", (1, 32, 20, 18), 64, residual=True)
    cases.convolution("conv3x3_odd_channels", (1, 19, 9, 11), 19, activation="Sigmoid")
    cases.convolution("conv3x3_batch", (8, 16, 6, 6), 32, residual=True)
    cases.convolution("conv3x3_no_bias", (1, 16, 13, 13), 24, bias=False, activation="")
    cases.convolution("conv3x3_stride_asymmetric", (1, 16, 12, 12), 32, pads=[0, 0, 1, 1], stride=2)
    cases.convolution("conv3x3_dilation", (1, 16, 12, 12), 16, dilation=2)
    cases.convolution("conv3x3_one_channel_in", (1, 1, 14, 14), 16)
    cases.convolution("conv3x3_one_channel_out", (1, 16, 10, 10), 1)
    cases.convolution("conv3x3_one_pixel", (1, 16, 1, 1), 16)
    cases.convolution("conv5x5", (1, 16, 9, 9), 40, (5, 5))
    cases.convolution("conv7x7_stride", (1, 3, 32, 32), 32, (7, 7), stride=2)
    cases.convolution("conv1x3", (1, 16, 10, 17), 32, (1, 3))
    cases.convolution("conv1x1_residual", (1, 32, 7, 9), 64, (1, 1), residual=True)
    cases.convolution("conv1x1_batch", (8, 16, 5, 5), 32, (1, 1))
    cases.convolution("conv1x1_odd_channels", (1, 19, 5, 7), 19, (1, 1))
    cases.convolution("conv1x1_stride", (1, 32, 8, 8), 64, (1, 1), stride=2)
    cases.convolution("conv1x1_one_pixel", (1, 64, 1, 1), 48, (1, 1))


def add_others(cases: Cases) -> None:
    """Everything else."""
    cases.convolution("grouped", (1, 32, 8, 8), 32, groups=2)
    cases.convolution("depthwise", (1, 32, 10, 10), 32, groups=32)
    cases.convolution("depthwise_stride_odd_channels", (1, 19, 11, 11), 19, stride=2, groups=19)
    cases.convolution("depthwise5x5_batch", (8, 48, 7, 7), 48, (5, 5), groups=48, residual=True)
    cases.product("linear_gelu", (1, 12, 48), (48, 64), gelu=True)
    cases.product("linear_odd", (5, 47), (47, 19))
    cases.product("linear_one_row", (1, 64), (64, 40))
    cases.product("linear_per_batch", (3, 8, 16), (3, 16, 24), bias=False)
    cases.product("attention", (2, 3, 16, 24), (2, 3, 24, 32), weight=False, bias=False)
    cases.product("linear_triangle", (48, 24), (24, 48), followers=[Follower("Trilu")])
    cases.product("attention_triangle", (2, 3, 16, 24), (2, 3, 24, 32), weight=False, followers=[Follower("Trilu")])
    cases.convolution("conv3x3_triangle", (1, 16, 12, 12), 32, activation="Trilu")
    cases.convolution("depthwise_triangle", (1, 32, 12, 12), 32, groups=32, activation="Trilu")
    cases.gemm("gemm", 6, 48, 80)
    cases.gemm("gemm_one_row", 1, 96, 10)
    cases.pool("max_pool", "MaxPool", (1, 16, 11, 11), (1, 16, 6, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cases.pool("average_pool", "GlobalAveragePool", (2, 32, 7, 7), (2, 32, 1, 1))


def all_cases() -> Cases:
    """Every case in f32."""
    cases = Cases()
    add_convolutions(cases)
    add_others(cases)
    return cases


def half_cases() -> Cases:
    """A few cases, to be turned into f16."""
    cases = Cases()
    cases.convolution("half_conv3x3", (1, 16, 9, 9), 32)
    cases.convolution("half_conv1x1", (1, 32, 6, 6), 64, (1, 1))
    cases.product("half_linear", (6, 48), (48, 64))
    return cases


def in_half(model: ModelProto) -> ModelProto:
    """The model with every f32 tensor in f16."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in (
        initializer for initializer in model.graph.initializer if initializer.data_type == TensorProto.FLOAT
    ):
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
    return model


Maker = Callable[[], ModelProto]

MAKERS: dict[str, Maker] = {
    "f32": lambda: all_cases().model(),
    "f16": lambda: in_half(half_cases().model()),
}

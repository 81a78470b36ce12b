"""Depthwise convolutions with a 1x1 convolution after them, of sizes that tiles, vectors and bands do not divide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import ModelProto

from sartor.codegen.ir.variants.routine import Parameters
from tests.codegen.routines.layer_cases import Shape, in_half
from tests.tiny_models import Builder


class Separables:
    """Collects cases; the layers of a case are its name with ``.apart`` and ``.joined``."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.names: list[str] = []
        self._inputs: list[tuple[str, Shape]] = []
        self._outputs: list[tuple[str, Shape]] = []

    def add(
        self,
        name: str,
        image: Shape,
        channels: int,
        kernel: Shape = (3, 3),
        *,
        stride: int = 1,
        dilation: int = 1,
        pads: Sequence[int] | None = None,
        between: str = "Relu6",
        after: str = "",
        bias: bool = True,
        operand: tuple[str, Shape] | None = None,
        residual: tuple[str, Shape] | None = None,
    ) -> None:
        """A case.

        Args:
            name: of the case.
            image: shape of its input.
            channels: of its result.
            kernel: extent of the window.
            stride: of the window.
            dilation: of the window.
            pads: of the image, else as many as keep its size at a stride of 1.
            between: activation after the window.
            after: activation at the end.
            bias: whether both convolutions have one.
            operand: kind and shape of what is combined with the window's result.
            residual: the same at the end; without a shape it is the input of the case.
        """
        b, given = self.builder, self._source(f"{name}.x", image)
        edges = [(size - 1) // 2 * dilation for size in kernel]
        pads = [*edges, *edges] if pads is None else list(pads)
        weights = [b.weight(image[1], 1, *kernel), *([b.weight(image[1])] if bias else [])]
        value = b.op(
            "Conv", f"{name}.apart", given, *weights, pads=pads,
            strides=[stride] * 2, dilations=[dilation] * 2, group=image[1],
        )  # fmt: skip
        if operand is not None:
            value = b.op(operand[0], f"{name}.operand", value, self._source(f"{name}.y", operand[1]))
        value = self._activated(f"{name}.between", between, value)
        weights = [b.weight(channels, image[1], 1, 1), *([b.weight(channels)] if bias else [])]
        value = b.op("Conv", f"{name}.joined", value, *weights)
        if residual is not None:
            other = self._source(f"{name}.z", residual[1]) if residual[1] else given
            value = b.op(residual[0], f"{name}.residual", value, other)
        height, width = (
            (image[2 + axis] + pads[axis] + pads[2 + axis] - dilation * (kernel[axis] - 1) - 1) // stride + 1
            for axis in range(2)
        )
        self._outputs.append((self._activated(f"{name}.after", after, value), (image[0], channels, height, width)))
        self.names.append(name)

    def model(self) -> ModelProto:
        """All cases in one model."""
        return self.builder.model(self._inputs, self._outputs)

    def _source(self, name: str, shape: Shape) -> str:
        self._inputs.append((name, shape))
        return name

    def _activated(self, name: str, kind: str, value: str) -> str:
        if not kind:
            return value
        if kind != "Relu6":
            return self.builder.op(kind, name, value)
        limits = [self.builder.constant(np.array(limit, np.float32)) for limit in (0, 6)]
        return self.builder.op("Clip", name, value, *limits)


def separable_cases() -> Separables:
    """All of them."""
    cases = Separables()
    _add_windows(cases)
    _add_operands(cases)
    return cases


def _add_windows(cases: Separables) -> None:
    cases.add("even", (1, 32, 12, 12), 64)
    cases.add("odd", (1, 17, 9, 11), 7, between="HardSwish", after="HardSwish")
    cases.add("stride2", (1, 24, 13, 15), 40, stride=2, after="Relu6")
    cases.add("batch3_stride3", (3, 37, 11, 13), 24, stride=3)
    cases.add("batch3", (3, 32, 8, 9), 48, after="HardSwish")
    cases.add("kernel5", (1, 16, 9, 8), 50, (5, 5), stride=2)
    cases.add("kernel1x3", (1, 24, 6, 10), 17, (1, 3), between="HardSwish")
    cases.add("kernel_larger_than_the_image", (1, 20, 2, 3), 16, (5, 5))
    cases.add("dilated", (1, 16, 17, 15), 32, dilation=2, stride=2)
    cases.add("uneven_padding", (1, 16, 6, 7), 32, pads=[0, 2, 1, 3])
    cases.add("one_pixel", (1, 24, 1, 1), 16)
    cases.add("one_pixel_of_many", (2, 7, 3, 3), 24, pads=[0] * 4)
    cases.add("one_row", (1, 16, 3, 20), 32, pads=[0] * 4)
    cases.add("one_column", (1, 16, 20, 3), 32, pads=[0] * 4)
    cases.add("few_channels", (1, 3, 7, 5), 2)
    cases.add("nothing_between", (1, 16, 5, 7), 24, between="", bias=False)


def _add_operands(cases: Separables) -> None:
    cases.add("residual", (2, 16, 8, 10), 16, residual=("Add", ()), after="HardSwish")
    cases.add("residual_apart", (3, 17, 6, 5), 24, residual=("Add", (3, 24, 6, 5)))
    cases.add("first_residual", (2, 32, 6, 5), 16, operand=("Add", (2, 32, 6, 5)), residual=("Mul", (1,)))
    cases.add("excited", (2, 32, 6, 5), 16, operand=("Mul", (2, 32, 1, 1)), residual=("Mul", (2, 16, 1, 1)))
    cases.add("by_pixel", (1, 16, 6, 5), 16, operand=("Mul", (1, 1, 6, 5)), residual=("Add", (1, 1, 6, 5)))


def _sizes(*rows: tuple[int, int, int, int, int, int, int]) -> list[Parameters]:
    names = ("band", "window_columns", "window_vectors", "columns", "vectors", "row_groups", "unroll")
    return [dict(zip(names, row, strict=True)) for row in rows]


# Bands of one row and of all, tiles of one pixel and beyond the band, one workgroup and more than there are bands.
EXTREME: Mapping[str, Mapping[str, list[Parameters]]] = {
    "even": {
        "separable": _sizes((1, 1, 1, 1, 1, 1, 2), (12, 5, 2, 5, 3, 1, 1), (4, 13, 4, 9, 2, 99, 3)),
        "separable_blocked": _sizes((12, 1, 1, 1, 1, 1, 2), (3, 5, 1, 5, 4, 3, 1)),
    },
    "odd": {"separable": _sizes((1, 4, 3, 3, 2, 2, 2), (9, 1, 1, 1, 1, 50, 1), (3, 20, 1, 7, 1, 1, 5))},
    "batch3": {
        "separable": _sizes((1, 9, 1, 5, 1, 8, 2), (8, 2, 2, 20, 1, 1, 1)),
        "separable_blocked": _sizes((1, 9, 1, 5, 1, 8, 2), (2, 2, 2, 7, 3, 3, 1)),
    },
    "one_pixel": {"separable": _sizes((1, 1, 1, 1, 1, 1, 2), (1, 4, 2, 4, 1, 3, 1))},
    "residual": {"separable": _sizes((1, 1, 1, 1, 1, 1, 2), (8, 3, 1, 9, 1, 5, 1))},
    "excited": {"separable": _sizes((1, 1, 1, 1, 1, 1, 2), (6, 3, 1, 9, 1, 5, 1))},
}


def refused_pair(
    image: Shape, channels: int = 32, *, kernel: int = 1, pads: int = 0, stride: int = 1, added: bool = False
) -> ModelProto:
    """A window and a convolution that may be another than 1x1, and to which the window's result may be added."""
    b, depth = Builder(), image[1]
    apart = b.op("Conv", "apart", "x", b.weight(depth, 1, 3, 3), b.weight(depth), pads=[1] * 4, group=depth)
    filters = b.weight(channels, depth, kernel, kernel)
    value = b.op("Conv", "joined", apart, filters, pads=[pads] * 4, strides=[stride] * 2)
    if added:
        value = b.op("Add", "added", value, apart)
    sizes = [(size + 2 * pads - kernel) // stride + 1 for size in image[2:]]
    return b.model([("x", image)], [(value, (image[0], channels, *sizes))])


_IMAGE = (1, 16, 5, 6)
_NO_PAIR = "no depthwise convolution with an unpadded 1x1 convolution after it"
REFUSED: Mapping[str, tuple[Callable[[], ModelProto], str]] = {
    "wide": (lambda: refused_pair((1, 192, 3, 72)), "not even one row fits the scratch"),
    "strided": (lambda: refused_pair(_IMAGE, stride=2), _NO_PAIR),
    "larger_kernel": (lambda: refused_pair(_IMAGE, kernel=3, pads=1), _NO_PAIR),
    "padded": (lambda: refused_pair(_IMAGE, pads=1), _NO_PAIR),
    "read_twice": (lambda: refused_pair(_IMAGE, 16, added=True), "the result of the first stage is read twice"),
    "half": (lambda: in_half(refused_pair(_IMAGE)), "its element types are not all f32"),
}

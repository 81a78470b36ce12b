"""Tiny ONNX models, one per shape of graph that the front end and the layer passes must get right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[np.generic]
Value = tuple[str, Sequence[int]]

OPSET = 19
ODD_NAME = 'a"b\\n\\c/é 日本\n@%'


class Builder:
    """Collects nodes and random weights; nodes are named after the value they compute."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.constant(self._random.standard_normal(shape).astype(np.float32) * np.float32(scale))

    def constant(self, array: Array) -> str:
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, output: str, *inputs: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def ops(self, kind: str, outputs: Sequence[str], *inputs: str, **attributes: Any) -> list[str]:
        self._nodes.append(helper.make_node(kind, list(inputs), list(outputs), name=outputs[0], **attributes))
        return list(outputs)

    def conv(self, output: str, source: str, channels: tuple[int, int], kernel: int = 3, **attributes: Any) -> str:
        """Convolution with bias that keeps the image's size unless it strides."""
        before, after = channels
        groups = int(str(attributes.get("group", 1)))
        weight, bias = self.weight(after, before // groups, kernel, kernel), self.weight(after)
        return self.op("Conv", output, source, weight, bias, pads=[kernel // 2] * 4, **attributes)

    def model(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        dtype: int = TensorProto.FLOAT,
        output_dtype: int | None = None,
    ) -> ModelProto:
        given = [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in inputs]
        made = [helper.make_tensor_value_info(name, output_dtype or dtype, list(shape)) for name, shape in outputs]
        graph = helper.make_graph(self._nodes, "tiny", given, made, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def residual() -> ModelProto:
    """Convolution, ReLU, convolution, residual add, ReLU."""
    b = Builder()
    first = b.op("Relu", "relu1", b.conv("conv1", "x", (16, 16)))
    second = b.conv("conv2", first, (16, 16))
    b.op("Relu", "y", b.op("Add", "add", second, "x"))
    return b.model([("x", (1, 16, 6, 6))], [("y", (1, 16, 6, 6))])


def shared_pad() -> ModelProto:
    """One padded image that feeds two convolutions, which are joined along the channels."""
    b = Builder()
    pads = b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    padded = b.op("Pad", "pad", "x", pads)
    left = b.op("Conv", "left", padded, b.weight(16, 8, 3, 3))
    right = b.op("Conv", "right", padded, b.weight(16, 8, 3, 3))
    b.op("Concat", "y", left, right, axis=1)
    return b.model([("x", (1, 8, 5, 5))], [("y", (1, 32, 5, 5))])


def hard_swish() -> ModelProto:
    """A convolution whose result its activation uses twice."""
    b = Builder()
    b.op("HardSwish", "y", b.conv("conv", "x", (3, 16)))
    return b.model([("x", (1, 3, 4, 4))], [("y", (1, 16, 4, 4))])


def silu() -> ModelProto:
    """The same, written as a sigmoid and a product."""
    b = Builder()
    conv = b.conv("conv", "x", (3, 16))
    b.op("Mul", "y", conv, b.op("Sigmoid", "sigmoid", conv))
    return b.model([("x", (1, 3, 4, 4))], [("y", (1, 16, 4, 4))])


def softmax() -> ModelProto:
    b = Builder()
    b.op("Softmax", "y", "x", axis=-1)
    return b.model([("x", (3, 7))], [("y", (3, 7))])


def layer_norm() -> ModelProto:
    b = Builder()
    b.op("LayerNormalization", "y", "x", b.weight(8), b.weight(8), axis=-1)
    return b.model([("x", (2, 5, 8))], [("y", (2, 5, 8))])


def squeeze_excite() -> ModelProto:
    """Channels weighted by what two small convolutions make of their means."""
    b = Builder()
    conv = b.op("Relu", "relu", b.conv("conv", "x", (4, 16)))
    mean = b.op("GlobalAveragePool", "mean", conv)
    small = b.op("Relu", "relu_small", b.conv("squeeze", mean, (16, 4), kernel=1))
    b.op("Mul", "y", conv, b.op("HardSigmoid", "gate", b.conv("excite", small, (4, 16), kernel=1)))
    return b.model([("x", (1, 4, 4, 4))], [("y", (1, 16, 4, 4))])


def gelu() -> ModelProto:
    """Matrix product, bias, GELU as exporters spell it."""
    b = Builder()
    sum_ = b.op("Add", "bias", b.op("MatMul", "matmul", "x", b.weight(8, 12)), b.weight(12))
    root = b.constant(np.array(2**0.5, np.float32))
    erf = b.op("Erf", "erf", b.op("Div", "div", sum_, root))
    one = b.op("Add", "one", erf, b.constant(np.array(1, np.float32)))
    b.op("Mul", "y", b.op("Mul", "product", sum_, one), b.constant(np.array(0.5, np.float32)))
    return b.model([("x", (1, 5, 8))], [("y", (1, 5, 12))])


def shuffle() -> ModelProto:
    """ShuffleNet's exchange of channels between groups."""
    b = Builder()
    conv = b.conv("conv", "x", (8, 8), kernel=1, group=2)
    split = b.op("Reshape", "split", conv, b.constant(np.array([1, 2, 4, 3, 3], np.int64)))
    swapped = b.op("Transpose", "swapped", split, perm=[0, 2, 1, 3, 4])
    joined = b.op("Reshape", "joined", swapped, b.constant(np.array([1, 8, 3, 3], np.int64)))
    b.conv("y", joined, (8, 8), group=8)
    return b.model([("x", (1, 8, 3, 3))], [("y", (1, 8, 3, 3))])


def inner_output() -> ModelProto:
    """A network output that a later layer reads."""
    b = Builder()
    first = b.op("Relu", "inner", b.conv("conv1", "x", (3, 16)))
    b.op("Relu", "y", b.conv("conv2", first, (16, 16)))
    return b.model([("x", (1, 3, 4, 4))], [("y", (1, 16, 4, 4)), ("inner", (1, 16, 4, 4))])


def passed_through() -> ModelProto:
    """An output that is an input, beside one that is computed."""
    b = Builder()
    b.op("Identity", "same", "x")
    b.op("Relu", "y", "x")
    return b.model([("x", (2, 3))], [("same", (2, 3)), ("y", (2, 3))])


def constant_output() -> ModelProto:
    """An output that depends on no input."""
    b = Builder()
    b.op("Relu", "y", "x")
    b.op("Exp", "fixed", b.weight(4, 5))
    return b.model([("x", (2, 3))], [("y", (2, 3)), ("fixed", (4, 5))])


def nothing_computed() -> ModelProto:
    """An output that is the input, and nothing else."""
    b = Builder()
    b.op("Concat", "y", "x", b.constant(np.zeros((0, 3), np.float32)), axis=0)
    return b.model([("x", (2, 3))], [("y", (2, 3))])


def no_elements() -> ModelProto:
    """A value without elements between others."""
    b = Builder()
    start, axis = b.constant(np.array([2], np.int64)), b.constant(np.array([0], np.int64))
    empty = b.op("Slice", "empty", "x", start, start, axis)
    b.op("Add", "y", "x", b.op("ReduceSum", "sum", b.op("Exp", "exp", empty), axis, keepdims=1))
    return b.model([("x", (2, 3))], [("y", (2, 3))])


def bytes_in_and_out() -> ModelProto:
    """An image of bytes, channels last, through a convolution that is exact in float32."""
    b = Builder()
    largest = b.op("MaxPool", "pool", b.op("Transpose", "image", "x", perm=[0, 3, 1, 2]), kernel_shape=[2, 2])
    weight = b.constant(np.random.default_rng(2).integers(-1, 2, (16, 3, 3, 3)).astype(np.float32))
    sums = b.op("Conv", "conv", b.op("Cast", "cast", largest, to=TensorProto.FLOAT), weight, pads=[1] * 4)
    zero, most = (b.constant(np.array(value, np.float32)) for value in (0, 255))
    b.op("Cast", "y", b.op("Clip", "clip", sums, zero, most), to=TensorProto.UINT8)
    return b.model([("x", (1, 7, 7, 3))], [("y", (1, 16, 6, 6))], TensorProto.UINT8)


def masks() -> ModelProto:
    """Booleans in and out."""
    b = Builder()
    b.op("And", "y", "x", b.op("Not", "not", "z"))
    return b.model([("x", (2, 30)), ("z", (2, 30))], [("y", (2, 30))], TensorProto.BOOL)


def same_twice() -> ModelProto:
    """One value as both operands, of a sum and of a product of matrices."""
    b = Builder()
    b.op("MatMul", "y", b.op("Add", "double", "x", "x"), "x")
    return b.model([("x", (4, 4))], [("y", (4, 4))])


def two_results() -> ModelProto:
    """Values and indices from one node, both of them outputs."""
    b = Builder()
    b.ops("TopK", ["values", "indices"], "x", b.constant(np.array([3], np.int64)))
    b.op("Cast", "y", "indices", to=TensorProto.FLOAT)
    return b.model([("x", (2, 8))], [("values", (2, 3)), ("y", (2, 3))])


def two_selections() -> ModelProto:
    """Layers that sort indices of one shape: beside real values, and beside integers."""
    b = Builder()
    count = b.constant(np.array([3], np.int64))
    whole = b.op(
        "Cast", "whole", b.op("Mul", "wide", "x", b.constant(np.full((1,), 100, np.float32))), to=TensorProto.INT32
    )
    for name, values in (("up", b.op("Exp", "exp", "x")), ("down", b.op("Neg", "neg", "x")), ("large", whole)):
        b.ops("TopK", [f"{name}_all", name], values, count)
    b.ops("TopK", ["small_all", "small"], whole, count, largest=0)
    outputs = [(each, (2, 3)) for each in ("up", "down", "large", "small")]
    return b.model([("x", (2, 8))], outputs, output_dtype=TensorProto.INT64)


def split() -> ModelProto:
    """Two parts of one image, each used."""
    b = Builder()
    left, right = b.ops("Split", ["left", "right"], b.conv("conv", "x", (3, 32)), axis=1, num_outputs=2)
    b.op("Mul", "y", left, b.op("Sigmoid", "gate", right))
    return b.model([("x", (1, 3, 4, 4))], [("y", (1, 16, 4, 4)), ("left", (1, 16, 4, 4))])


def batch() -> ModelProto:
    """Eight images, a stride and a pooling."""
    b = Builder()
    conv = b.op("Relu", "relu", b.conv("conv", "x", (3, 16), strides=[2, 2]))
    b.op("MaxPool", "y", conv, kernel_shape=[2, 2], strides=[2, 2])
    return b.model([("x", (8, 3, 8, 8))], [("y", (8, 16, 2, 2))])


def one_pixel() -> ModelProto:
    b = Builder()
    b.op("Relu", "y", b.conv("conv", "x", (16, 16), kernel=1))
    return b.model([("x", (1, 16, 1, 1))], [("y", (1, 16, 1, 1))])


def one_channel() -> ModelProto:
    b = Builder()
    b.op("AveragePool", "y", b.conv("conv", "x", (1, 1)), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return b.model([("x", (1, 1, 5, 5))], [("y", (1, 1, 5, 5))])


def blocks() -> ModelProto:
    """The same layer three times with different weights, and once on other channels."""
    b = Builder()
    value = "x"
    for index in range(3):
        value = b.op("Relu", f"relu{index}", b.conv(f"block/conv.{index}", value, (16, 16)))
    b.op("Relu", "y", b.conv("last", value, (16, 8)))
    return b.model([("x", (1, 16, 5, 5))], [("y", (1, 8, 5, 5))])


def separable() -> ModelProto:
    """Depthwise convolutions, each with a 1x1 convolution after it: a residual block, and one that strides."""
    b = Builder()
    first = b.op("Relu", "relu1", b.conv("apart1", "x", (16, 16), group=16))
    block = b.op("Add", "add", b.conv("joined1", first, (16, 16), kernel=1), "x")
    second = b.op("HardSwish", "swish2", b.conv("apart2", block, (16, 16), group=16, strides=[2, 2]))
    b.op("Relu", "y", b.conv("joined2", second, (16, 24), kernel=1))
    return b.model([("x", (1, 16, 8, 8))], [("y", (1, 24, 4, 4))])


def unused_input() -> ModelProto:
    b = Builder()
    b.op("Relu", "y", "x")
    return b.model([("unused", (4, 1)), ("x", (2, 3))], [("y", (2, 3))])


def equal_outputs() -> ModelProto:
    """One value under two names."""
    b = Builder()
    b.op("Identity", "copy", b.op("Relu", "y", "x"))
    return b.model([("x", (2, 3))], [("y", (2, 3)), ("copy", (2, 3))])


def odd_names() -> ModelProto:
    """Names that mean something in MLIR, JSON and paths."""
    b = Builder()
    b.op("Exp", "y", b.op("Relu", ODD_NAME, "../x"))
    return b.model([("../x", (2, 3))], [("y", (2, 3)), (ODD_NAME, (2, 3))])


def looping(steps: int) -> ModelProto:
    """A loop with a fixed number of steps, which are few operations each."""
    info = helper.make_tensor_value_info
    given = [info("step", TensorProto.INT64, []), info("goes", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [3])]
    made = [info("goes_on", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [3])]
    inner = [helper.make_node("Identity", ["goes"], ["goes_on"]), helper.make_node("Tanh", ["v"], ["w"])]
    b = Builder()
    body = helper.make_graph(inner, "body", given, made)
    b.op("Loop", "y", b.constant(np.array(steps, np.int64)), "", "x", body=body)
    return b.model([("x", [3])], [("y", [3])])


def lenet() -> ModelProto:
    """Convolutions, poolings and dense layers."""
    b = Builder()
    first = b.op("Relu", "relu1", b.conv("conv1", "x", (1, 16), kernel=5))
    small = b.op("MaxPool", "pool1", first, kernel_shape=[2, 2], strides=[2, 2])
    second = b.op("Relu", "relu2", b.conv("conv2", small, (16, 16)))
    flat = b.op("Flatten", "flat", b.op("MaxPool", "pool2", second, kernel_shape=[2, 2], strides=[2, 2]))
    dense = b.op("Relu", "relu3", b.op("Gemm", "dense1", flat, b.weight(64, 20), b.weight(20)))
    b.op("Softmax", "y", b.op("Gemm", "dense2", dense, b.weight(10, 20), b.weight(10), transB=1))
    return b.model([("x", (1, 1, 8, 8))], [("y", (1, 10))])


MODELS: dict[str, Callable[[], ModelProto]] = {
    each.__name__: each
    for each in (
        residual,
        shared_pad,
        hard_swish,
        silu,
        softmax,
        layer_norm,
        squeeze_excite,
        gelu,
        shuffle,
        inner_output,
        passed_through,
        constant_output,
        nothing_computed,
        no_elements,
        bytes_in_and_out,
        masks,
        same_twice,
        two_results,
        two_selections,
        split,
        batch,
        one_pixel,
        one_channel,
        blocks,
        separable,
        unused_input,
        equal_outputs,
        odd_names,
        lenet,
    )
}

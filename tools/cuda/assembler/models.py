"""Layers as they are in known networks, one of each kind and size that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

_CONVOLUTIONS = {
    # channels in, channels out, image, kernel, stride, groups, whether a residual is added
    "resnet": (
        *((3, 64, 224, 7, 2, 1, False), (64, 64, 56, 3, 1, 1, True), (64, 256, 56, 1, 1, 1, True)),
        *((256, 64, 56, 1, 1, 1, False), (128, 128, 56, 3, 2, 1, False), (256, 512, 56, 1, 2, 1, False)),
        *((128, 128, 28, 3, 1, 1, True), (512, 128, 28, 1, 1, 1, False), (256, 256, 14, 3, 1, 1, True)),
        *((256, 1024, 14, 1, 1, 1, True), (512, 512, 7, 3, 1, 1, True), (2048, 512, 7, 1, 1, 1, False)),
    ),
    "mobilenet": (
        *((3, 32, 224, 3, 2, 1, False), (32, 32, 112, 3, 1, 32, False), (96, 96, 112, 3, 2, 96, False)),
        *((144, 24, 56, 1, 1, 1, True), (24, 144, 56, 1, 1, 1, False), (240, 240, 14, 5, 1, 240, False)),
        *((960, 160, 7, 1, 1, 1, True), (320, 1280, 7, 1, 1, 1, False)),
    ),
}
_PRODUCTS = ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (1, 2048, 1000))


_HEADS = (
    # Heads, positions, and numbers of a head; an odd number of positions is without a mask.
    *((12, 128, 64), (8, 1024, 128), (3, 196, 64), (12, 128, 32), (3, 197, 64)),
)
_ATTENTION = (
    # Twelve heads of 64, over 128 positions.
    ("scores", [1, 12, 128, 64], [1, 12, 64, 128]),
    ("context", [1, 12, 128, 128], [1, 12, 128, 64]),
)


def _convolutions(name: str) -> ModelProto:
    nodes, inputs, outputs, weights = [], [], [], []
    for index, (depth, channels, size, kernel, stride, groups, is_added) in enumerate(_CONVOLUTIONS[name]):
        filters = np.zeros((channels, depth // groups, kernel, kernel), np.float32)
        weights += [numpy_helper.from_array(filters, f"w{index}")]
        weights += [numpy_helper.from_array(np.zeros(channels, np.float32), f"b{index}")]
        shape = [1, channels, -(-size // stride), -(-size // stride)]
        inputs.append(_value(f"x{index}", [1, depth, size, size]))
        attributes: dict[str, Any] = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
        nodes.append(helper.make_node("Conv", [f"x{index}", f"w{index}", f"b{index}"], [f"c{index}"], **attributes))
        value = f"c{index}"
        if is_added:
            inputs.append(_value(f"r{index}", shape))
            nodes.append(helper.make_node("Add", [value, f"r{index}"], [f"a{index}"]))
            value = f"a{index}"
        nodes.append(helper.make_node("Relu", [value], [f"y{index}"]))
        outputs.append(_value(f"y{index}", shape))
    return _model(nodes, inputs, outputs, weights)


def _transformer() -> ModelProto:
    nodes, inputs, outputs, weights = [], [], [], []
    for index, (rows, depth, columns) in enumerate(_PRODUCTS):
        weights.append(numpy_helper.from_array(np.zeros((depth, columns), np.float32), f"w{index}"))
        weights.append(numpy_helper.from_array(np.zeros(columns, np.float32), f"b{index}"))
        inputs.append(_value(f"x{index}", [rows, depth]))
        nodes.append(helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"m{index}"]))
        nodes.append(helper.make_node("Add", [f"m{index}", f"b{index}"], [f"y{index}"]))
        outputs.append(_value(f"y{index}", [rows, columns]))
    for name, left, right in _ATTENTION:
        inputs += [_value(f"{name}.x", left), _value(f"{name}.y", right)]
        nodes.append(helper.make_node("MatMul", [f"{name}.x", f"{name}.y"], [name]))
        outputs.append(_value(name, [*left[:-1], right[-1]]))
    inputs.append(_value("s", [1, 12, 128, 128]))
    nodes.append(helper.make_node("Softmax", ["s"], ["t"], axis=-1))
    outputs.append(_value("t", [1, 12, 128, 128]))
    return _model(nodes, inputs, outputs, weights)


def _value(name: str, shape: list[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto],
) -> ModelProto:
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def _attention() -> ModelProto:
    nodes, inputs, outputs = [], [], []
    for index, (heads, positions, depth) in enumerate(_HEADS):
        names = {name: f"{name}{index}" for name in ("q", "k", "v", "s", "m", "t", "y")}
        shape = [1, heads, positions, depth]
        inputs += [_value(names["q"], shape), _value(names["k"], [1, heads, depth, positions])]
        inputs.append(_value(names["v"], shape))
        scores = names["m"] if positions % 2 else names["s"]
        nodes.append(helper.make_node("MatMul", [names["q"], names["k"]], [scores]))
        if positions % 2 == 0:
            inputs.append(_value(f"mask{index}", [1, 1, 1, positions]))
            nodes.append(helper.make_node("Add", [scores, f"mask{index}"], [names["m"]]))
        nodes.append(helper.make_node("Softmax", [names["m"]], [names["t"]], axis=-1))
        nodes.append(helper.make_node("MatMul", [names["t"], names["v"]], [names["y"]]))
        outputs.append(_value(names["y"], shape))
    return _model(nodes, inputs, outputs, [])


_POOLINGS = (
    # Operation, channels, image, kernel, stride.
    *(("MaxPool", 64, 112, 3, 2), ("MaxPool", 192, 28, 3, 1), ("AveragePool", 160, 14, 2, 2)),
    *(("AveragePool", 2048, 7, 7, 1),),
)
_ROWS = (
    # Operation, rows, numbers of a row.
    *(("Softmax", 128, 1000), ("LayerNormalization", 128, 384), ("LayerNormalization", 197, 192)),
)


def _rows() -> ModelProto:
    """Poolings, and layers on rows."""
    nodes, inputs, outputs, weights = [], [], [], []
    for index, (kind, channels, size, kernel, stride) in enumerate(_POOLINGS):
        extent = (size - kernel) // stride + 1
        inputs.append(_value(f"x{index}", [1, channels, size, size]))
        outputs.append(_value(f"y{index}", [1, channels, extent, extent]))
        attributes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        nodes.append(helper.make_node(kind, [f"x{index}"], [f"y{index}"], **attributes))
    for index, (kind, rows, length) in enumerate(_ROWS):
        names = [f"r{index}"]
        inputs.append(_value(names[0], [rows, length]))
        outputs.append(_value(f"z{index}", [rows, length]))
        if kind == "LayerNormalization":
            names += [f"g{index}", f"b{index}"]
            weights += [numpy_helper.from_array(np.ones(length, np.float32), name) for name in names[1:]]
        nodes.append(helper.make_node(kind, names, [f"z{index}"], axis=-1))
    return _model(nodes, inputs, outputs, weights)


_SEPARABLE = (
    # Channels, channels of the result, image, kernel, stride, whether a residual is added.
    *((32, 16, 112, 3, 1, False), (96, 24, 112, 3, 2, False), (144, 24, 56, 3, 1, True), (384, 64, 14, 3, 1, True)),
    *((240, 80, 28, 5, 2, False), (576, 160, 14, 3, 2, False), (960, 320, 7, 3, 1, False), (512, 1024, 7, 3, 1, False)),
)


def _separable() -> ModelProto:
    """Depthwise convolutions, each with a 1x1 convolution after it."""
    nodes, inputs, outputs, weights = [], [], [], []
    for index, (depth, channels, size, kernel, stride, is_added) in enumerate(_SEPARABLE):
        shapes = {"f": (depth, 1, kernel, kernel), "b": (depth,), "w": (channels, depth, 1, 1), "c": (channels,)}
        zeros = {f"{name}{index}": np.zeros(each, np.float32) for name, each in shapes.items()}
        weights += [numpy_helper.from_array(zero, name) for name, zero in zeros.items()]
        shape = [1, channels, -(-size // stride), -(-size // stride)]
        inputs.append(_value(f"x{index}", [1, depth, size, size]))
        attributes: dict[str, Any] = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": depth}
        names = [f"{name}{index}" for name in ("x", "f", "b")]
        nodes.append(helper.make_node("Conv", names, [f"d{index}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"d{index}"], [f"e{index}"]))
        result = f"p{index}" if is_added else f"y{index}"
        nodes.append(helper.make_node("Conv", [f"e{index}", f"w{index}", f"c{index}"], [result]))
        if is_added:
            inputs.append(_value(f"r{index}", shape))
            nodes.append(helper.make_node("Add", [result, f"r{index}"], [f"y{index}"]))
        outputs.append(_value(f"y{index}", shape))
    return _model(nodes, inputs, outputs, weights)


def _half(model: ModelProto) -> ModelProto:
    """The same layers in f16."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
    return model


MODELS: dict[str, Callable[[], ModelProto]] = {
    "resnet": lambda: _convolutions("resnet"),
    "mobilenet": lambda: _convolutions("mobilenet"),
    "transformer": _transformer,
    "attention": _attention,
    "separable": _separable,
    "rows": _rows,
    "f16 resnet": lambda: _half(_convolutions("resnet")),
    "f16 mobilenet": lambda: _half(_convolutions("mobilenet")),
    "f16 transformer": lambda: _half(_transformer()),
    "f16 rows": lambda: _half(_rows()),
}
"""Models of separate layers, by name."""

"""The layers whose variants are counted: small models of one convolution, product or window each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 18


def _model(node: onnx.NodeProto, shape: tuple[int, ...], weights: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """A model of a node and a ReLU after it, whose output has no given shape."""
    random = np.random.default_rng(0)
    values = [
        numpy_helper.from_array(random.standard_normal(size).astype(np.float32), name) for name, size in weights.items()
    ]
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["y"], ["z"], name="relu")],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        values,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    return onnx.shape_inference.infer_shapes(model)


def _convolution(
    depth: int, channels: int, size: int, kernel: int, stride: int = 1, groups: int = 1
) -> onnx.ModelProto:
    pad = kernel // 2
    node = helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["y"],
        name="layer",
        strides=[stride] * 2,
        pads=[pad] * 4,
        group=groups,
        kernel_shape=[kernel] * 2,
    )
    weights = {"w": (channels, depth // groups, kernel, kernel), "b": (channels,)}
    return _model(node, (1, depth, size, size), weights)


def _product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer")
    return _model(node, (rows, depth), {"w": (depth, columns), "b": (columns,)})


def _pooling(operator: str, channels: int, size: int) -> onnx.ModelProto:
    node = helper.make_node(
        operator, ["x"], ["y"], name="layer", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    return _model(node, (1, channels, size, size), {})


LAYERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "first": partial(_convolution, 3, 32, 64, 3, 2),
    "convolution 3x3": partial(_convolution, 32, 32, 28, 3),
    "convolution 3x3, late": partial(_convolution, 128, 128, 7, 3),
    "convolution 3x3, stride 2": partial(_convolution, 32, 64, 28, 3, 2),
    "convolution 1x1": partial(_convolution, 64, 96, 14, 1),
    "convolution 5x5": partial(_convolution, 16, 32, 14, 5),
    "depthwise": partial(_convolution, 96, 96, 28, 3, 1, 96),
    "depthwise, stride 2": partial(_convolution, 96, 96, 28, 3, 2, 96),
    "product": partial(_product, 64, 128, 192),
    "fully connected": partial(_product, 1, 512, 256),
    "largest of a window": partial(_pooling, "MaxPool", 64, 28),
    "mean of a window": partial(_pooling, "AveragePool", 64, 28),
}
"""By name; sizes are small, as emulation takes some hundred times as long as a CPU."""

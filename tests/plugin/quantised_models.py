"""Small quantised networks, as exporters write them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, weights

_TYPES = {"int8": np.int8, "uint8": np.uint8}


class Qdq:
    """Collects nodes in which every tensor is quantised and dequantised.

    Args:
        kind: numpy's name of the activations' type.
    """

    def __init__(self, kind: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Any] = {}
        self._kind = kind

    def pair(self, name: str, low: float, high: float, *, output: str = "") -> str:
        """A tensor between two numbers, after it was stored in 8 bits; ``output`` names it."""
        limits = np.iinfo(_TYPES[self._kind])
        scale = np.float32((high - low) / 255)
        zero = round(limits.min - low / float(scale))
        self.constants |= {f"{name}_s": scale, f"{name}_z": np.asarray(zero, _TYPES[self._kind])}
        numbers = [f"{name}_s", f"{name}_z"]
        self.nodes.append(node("QuantizeLinear", [name, *numbers], [f"{name}_q"], name=f"{name}_q"))
        result = output or f"{name}_d"
        self.nodes.append(node("DequantizeLinear", [f"{name}_q", *numbers], [result], name=f"{name}_d"))
        return result

    def weight(self, name: str, values: Array, zero: int = 0, axis: int = 0) -> str:
        """A dequantised constant, by a scale for each index of an axis."""
        kind = np.uint8 if zero else np.int8
        others = tuple(index for index in range(values.ndim) if index != axis)
        scales = (np.abs(values).max(axis=others, keepdims=True) / 127).astype(np.float32)
        limits = np.iinfo(kind)
        stored = np.clip(np.rint(values / scales) + zero, limits.min, limits.max).astype(kind)
        count = values.shape[axis]
        self.constants |= {name: stored, f"{name}_s": scales.reshape(-1), f"{name}_z": np.full(count, zero, kind)}
        self.op("DequantizeLinear", [name, f"{name}_s", f"{name}_z"], f"{name}_d", axis=axis)
        return f"{name}_d"

    def op(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node named after its output."""
        self.nodes.append(node(operator, inputs, [output], name=output, **attributes))
        return output


def network(kind: str = "int8", zero: int = 0) -> ModelProto:
    """Two convolutions, an addition, pooling, a concatenation and a matrix product; weights have this zero point."""
    q = Qdq(kind)
    x = q.pair("x", -2.0, 2.2)
    q.constants["bias"] = weights(16, seed=3, scale=0.2)
    first = q.op("Conv", [x, q.weight("w1", weights(16, 8, 3, 3, scale=0.1), zero), "bias"], "conv1", pads=[1] * 4)
    first = q.pair(q.op("Relu", [first], "relu1"), 0.0, 3.0)
    second = q.op(
        "Conv", [first, q.weight("w2", weights(16, 16, 3, 3, seed=1, scale=0.08), zero)], "conv2", pads=[1] * 4
    )
    second = q.pair(second, -2.5, 2.0)
    total = q.pair(q.op("Add", [first, second], "sum"), -1.9, 3.5)
    pooled = q.op("MaxPool", [total], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    other = q.op("MaxPool", [total], "other", kernel_shape=[2, 2], strides=[2, 2])
    joined = q.op("Concat", [pooled, other], "joined", axis=1)
    mean = q.pair(q.op("GlobalAveragePool", [joined], "mean"), -1.9, 3.5)
    flat = q.op("Flatten", [mean], "flat")
    q.op("MatMul", [flat, q.weight("w3", weights(32, 24, seed=2, scale=0.2), zero, axis=1)], "product")
    q.pair("product", -3.0, 3.0, output="y")
    return model(q.nodes, [("x", (1, 8, 12, 10), FLOAT)], ["y"], q.constants)


def one_convolution(zero: int = 0) -> ModelProto:
    """QLinearConv with padding and zero points, in uint8, around it what makes it floats."""
    scales = np.abs(weights(16, seed=5, scale=0.01)) + np.float32(4e-3)
    random = np.random.default_rng(6)
    stored = random.integers(0, 255, (16, 12, 3, 3), np.uint8) if zero else random.integers(-128, 127, (16, 12, 3, 3))
    kind = np.uint8 if zero else np.int8
    constants = {
        **{"xs": np.float32(0.02), "xz": np.uint8(131), "ys": np.float32(0.5), "yz": np.uint8(120)},
        **{"w": stored.astype(kind), "ws": scales, "wz": np.full(16, zero, kind)},
        "b": random.integers(-3000, 3000, 16).astype(np.int32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="q"),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], name="conv", pads=[1, 0, 2, 1]),
        node("MaxPool", ["c"], ["m"], name="pool", kernel_shape=[2, 2]),
        node("DequantizeLinear", ["m", "ys", "yz"], ["y"], name="d"),
    ]
    return model(nodes, [("x", (1, 12, 9, 11), FLOAT)], ["y"], constants)


def dynamic_product() -> ModelProto:
    """What is multiplied is quantised by its own range, which is known at run time only."""
    numbers = np.random.default_rng(7).integers(-127, 127, (32, 16)).astype(np.int8)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q"),
        node("MatMulInteger", ["q", "w", "z"], ["i"], name="product"),
        node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["scale"], name="scale"),
        node("Mul", ["f", "scale"], ["y"], name="y"),
    ]
    return model(nodes, [("x", (5, 32), FLOAT)], ["y"], {"w": numbers, "ws": np.float32(0.01)})

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


def one_convolution(zero: int = 0, depth: int = 12, size: tuple[int, int] = (9, 11)) -> ModelProto:
    """QLinearConv with padding and zero points, in uint8, around it what makes it floats."""
    scales = np.abs(weights(16, seed=5, scale=0.01)) + np.float32(4e-3)
    random = np.random.default_rng(6)
    shape = (16, depth, 3, 3)
    stored = random.integers(0, 255, shape, np.uint8) if zero else random.integers(-128, 127, shape)
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
    return model(nodes, [("x", (1, depth, *size), FLOAT)], ["y"], constants)


def product_beside_floats() -> ModelProto:
    """A product whose operand alone is quantised: it adds floats, as residuals between LayerNormalizations are, and
    its result is not quantised."""
    random = np.random.default_rng(7)
    constants = {
        **{"xs": np.float32(0.02), "xz": np.uint8(131), "wz": np.zeros(24, np.int8)},
        **{
            "w": random.integers(-128, 127, (32, 24)).astype(np.int8),
            "ws": np.abs(weights(24, seed=5)) + np.float32(0.01),
        },
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"], name="d"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"], name="v", axis=1),
        node("MatMul", ["d", "v"], ["p"], name="product"),
        node("Add", ["p", "r"], ["y"], name="residual"),
    ]
    return model(nodes, [("x", (20, 32), FLOAT), ("r", (20, 24), FLOAT)], ["y"], constants)


class Dynamic:
    """Collects nodes that quantise what they multiply by its own range, which is known at run time only."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Any] = {}
        self._random = np.random.default_rng(seed)

    def op(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node named after its output."""
        self.nodes.append(node(operator, inputs, [output], name=output, **attributes))
        return output

    def quantised(self, name: str) -> str:
        """A tensor in uint8; ``<name>_s`` and ``<name>_z`` are its scale and zero point."""
        outputs = [f"{name}_q", f"{name}_s", f"{name}_z"]
        self.nodes.append(node("DynamicQuantizeLinear", [name], outputs, name=f"{name}_quantised"))
        return outputs[0]

    def weight(self, name: str, shape: tuple[int, ...], kind: str, zero: int | Array | None = None) -> list[str]:
        """Integers and, if there is one, their zero point."""
        limits = np.iinfo(_TYPES[kind])
        self.constants[name] = self._random.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)
        if zero is None:
            return [name]
        self.constants[f"{name}_z"] = np.asarray(zero, kind)
        return [name, f"{name}_z"]

    def scaled(self, sums: str, operand: str, scales: Array | np.floating[Any], output: str) -> str:
        """What sums of products stand for."""
        self.constants[f"{sums}_ws"] = scales.astype(np.float32)
        factor = self.op("Mul", [f"{operand}_s", f"{sums}_ws"], f"{sums}_scale")
        return self.op("Mul", [self.op("Cast", [sums], f"{sums}_f", to=TensorProto.FLOAT), factor], output)


def dynamic_product(*, kind: str = "int8", zero: int | Array | None = None, scales: Array | None = None) -> ModelProto:
    """``y``, a product by a weight of this type and zero point, and its integers ``sums``; odd sizes."""
    d = Dynamic(7)
    q, (weight, *zeros) = d.quantised("x"), d.weight("w", (37, 19), kind, zero)
    d.op("MatMulInteger", [q, weight, "x_z", *zeros], "sums")
    d.scaled("sums", "x", np.float32(0.01) if scales is None else scales, "y")
    return model(d.nodes, [("x", (2, 5, 37), FLOAT)], ["y", ("sums", None, TensorProto.INT32)], d.constants)


def dynamic_convolution(**attributes: Any) -> ModelProto:
    """``y``, a convolution of 12 odd channels, and its integers ``sums``."""
    d = Dynamic(8)
    group = attributes.get("group", 1)
    q, (weight,) = d.quantised("x"), d.weight("w", (14, 6 // group, 3, 2), "int8")
    d.op("ConvInteger", [q, weight, "x_z"], "sums", **attributes)
    scales = np.linspace(1e-3, 1e-2, 14).reshape(14, 1, 1)
    d.scaled("sums", "x", scales, "y")
    return model(d.nodes, [("x", (1, 6, 9, 11), FLOAT)], ["y", ("sums", None, TensorProto.INT32)], d.constants)


def dynamic_network() -> ModelProto:
    """Two convolutions, one of them padded, pooling and two products of one tensor."""
    d = Dynamic(9)
    d.constants["bias"] = weights(32, 1, 1, seed=3)
    (first,), (second,) = d.weight("w1", (32, 16, 3, 3), "int8"), d.weight("w2", (32, 32, 1, 1), "int8")
    products = [d.weight(name, (32, 24), "int8") for name in ("w3", "w4")]
    d.op("ConvInteger", [d.quantised("x"), first, "x_z"], "conv1", pads=[1] * 4)
    d.op("Add", [d.scaled("conv1", "x", np.float32(1e-3), "real1"), "bias"], "biased")
    relu = d.op("Relu", ["biased"], "relu")
    d.op("ConvInteger", [d.quantised(relu), second, "relu_z"], "conv2")
    d.op("GlobalAveragePool", [d.scaled("conv2", relu, np.float32(1e-3), "real2")], "mean")
    flat = d.op("Flatten", ["mean"], "flat")
    q = d.quantised(flat)
    for number, (weight,) in enumerate(products):
        d.op("MatMulInteger", [q, weight, "flat_z"], f"product{number}")
        d.scaled(f"product{number}", flat, np.linspace(1e-3, 2e-3, 24), f"real{number + 3}")
    d.op("Add", ["real3", "real4"], "y")
    return model(d.nodes, [("x", (1, 16, 24, 20), FLOAT)], ["y"], d.constants)

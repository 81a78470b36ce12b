"""Small quantised networks of random weights, which amplify one step of rounding to a large error of the output."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from tests.plugin.onnx_model.builders import FLOAT, Array, model, node

SHAPE = (1, 3, 16, 16)
# Values are clipped to a range that they exceed by far, which makes a network chaotic.
_GAIN = 5.0


class _Net:
    """Collects convolutions with random weights."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Any] = {"zero": np.float32(0), "six": np.float32(6)}
        self._random = np.random.default_rng(seed)

    def op(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(node(operator, inputs, [output], name=output, **attributes))
        return output

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        fan = math.prod(shape[1:])
        self.constants[name] = (self._random.standard_normal(shape) * _GAIN * math.sqrt(2 / fan)).astype(np.float32)
        return name

    def conv(self, source: str, name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        self.constants[f"{name}_b"] = (self._random.standard_normal(shape[0]) * 0.1).astype(np.float32)
        pads = [shape[2] // 2] * 4
        return self.op("Conv", [source, self.weight(f"{name}_w", shape), f"{name}_b"], name, pads=pads, **attributes)

    def clip(self, source: str) -> str:
        return self.op("Clip", [source, "zero", "six"], f"{source}_r")

    def head(self, source: str, channels: int) -> ModelProto:
        pooled = self.op("MaxPool", [source], "pooled", kernel_shape=[4, 4], strides=[4, 4])
        flat = self.op("Flatten", [pooled], "flat")
        self.op("MatMul", [flat, self.weight("head_w", (16 * channels, 10))], "y")
        return model(self.nodes, [("x", SHAPE, FLOAT)], ["y"], self.constants)


def residual(blocks: int = 4, channels: int = 8) -> ModelProto:
    """Blocks of two convolutions and a shortcut, as ResNet has."""
    net = _Net(3)
    last = net.clip(net.conv("x", "stem", (channels, 3, 3, 3)))
    for index in range(blocks):
        first = net.clip(net.conv(last, f"a{index}", (channels, channels, 3, 3)))
        second = net.conv(first, f"b{index}", (channels, channels, 3, 3))
        last = net.clip(net.op("Add", [second, last], f"s{index}"))
    return net.head(last, channels)


def inverted(blocks: int = 3, channels: int = 8, wide: int = 24) -> ModelProto:
    """Blocks that widen, convolve each channel and narrow, as MobileNetV2 has."""
    net = _Net(4)
    last = net.conv("x", "stem", (channels, 3, 3, 3))
    for index in range(blocks):
        first = net.clip(net.conv(last, f"e{index}", (wide, channels, 1, 1)))
        depth = net.clip(net.conv(first, f"d{index}", (wide, 1, 3, 3), group=wide))
        last = net.op("Add", [net.conv(depth, f"p{index}", (channels, wide, 1, 1)), last], f"s{index}")
    return net.head(last, channels)


NETWORKS = {"residual": residual, "inverted": inverted}


def image(seed: int) -> Array:
    """A random input."""
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


class _Images(CalibrationDataReader):  # type: ignore[misc] # onnxruntime has no types
    def __init__(self) -> None:
        self._feeds = iter([{"x": image(seed)} for seed in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def quantised(name: str, folder: Path, layout: str = "qdq") -> Path:
    """The file of a network with activations of 8 bits without a sign, and weights with one, a scale per channel."""
    source, path = folder / f"{name}.float.onnx", folder / f"{name}.onnx"
    onnx.save(NETWORKS[name](), source)
    quantize_static(
        source,
        path,
        _Images(),
        quant_format=QuantFormat.QDQ if layout == "qdq" else QuantFormat.QOperator,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return path

"""A small network as onnxruntime's own tools quantise it, in all forms; calibrated on random images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, weights

SHAPE = (1, 8, 6, 6)
CONVOLUTIONS = ("conv", "depthwise", "last")
POOLINGS = ("most", "average", "joined")


@dataclass(frozen=True)
class Form:
    """What the tools are told.

    Attributes:
        layout: ``qdq`` or ``qoperator``.
        activations: ``int8`` or ``uint8``.
        kind: of the weights, likewise.
        by_channel: whether each channel of weights has a scale.
        symmetric: whether activations have zero as zero point.
        reduced: whether weights have 7 bits.
    """

    layout: str
    activations: str
    kind: str
    by_channel: bool
    symmetric: bool
    reduced: bool

    def __str__(self) -> str:
        flags = [name for name in ("by_channel", "symmetric", "reduced") if getattr(self, name)]
        return "-".join([self.layout, self.activations, self.kind, *flags])


def forms() -> Iterator[Form]:
    """All that the tools offer: for activations with a sign weights have one."""
    types = [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")]
    either = (False, True)
    for layout, (activations, kind) in itertools.product(("qdq", "qoperator"), types):
        for by_channel, symmetric, reduced in itertools.product(either, either, either):
            yield Form(layout, activations, kind, by_channel, symmetric, reduced)


def float_network() -> ModelProto:
    """Convolutions, one of them depthwise, a residual, poolings, a concatenation and a product."""
    constants: dict[str, Any] = {
        **{"w1": weights(16, 8, 3, 3, scale=0.17), "b1": weights(16, seed=1, scale=0.1)},
        **{"w2": weights(16, 1, 3, 3, seed=2, scale=0.5), "b2": weights(16, seed=3, scale=0.1)},
        **{"w3": weights(16, 16, 1, 1, seed=4, scale=0.3), "b3": weights(16, seed=5, scale=0.1)},
        **{"w4": weights(32, 10, seed=6, scale=0.2), "b4": weights(10, seed=7, scale=0.1)},
        **{"low": np.float32(0), "high": np.float32(6)},
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="conv", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], name="relu"),
        node("Conv", ["r1", "w2", "b2"], ["c2"], name="depthwise", pads=[1] * 4, group=16),
        node("Clip", ["c2", "low", "high"], ["r2"], name="relu6"),
        node("Conv", ["r2", "w3", "b3"], ["c3"], name="last"),
        node("Add", ["c3", "r1"], ["a"], name="residual"),
        node("MaxPool", ["a"], ["m"], name="most", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["a"], ["v"], name="average", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["m", "v"], ["k"], name="joined", axis=1),
        node("GlobalAveragePool", ["k"], ["g"], name="mean"),
        node("Flatten", ["g"], ["f"], name="flat"),
        node("Gemm", ["f", "w4", "b4"], ["y"], name="product"),
    ]
    return model(nodes, [("x", SHAPE, FLOAT)], ["y"], constants)


def image(seed: int) -> Array:
    """A random input."""
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


class _Images(CalibrationDataReader):  # type: ignore[misc] # onnxruntime has no types
    def __init__(self) -> None:
        self._feeds = iter([{"x": image(seed)} for seed in range(8)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def quantised(form: Form, folder: Path) -> Path:
    """The file of the network in a form."""
    kinds = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    source, path = _source(folder), folder / f"{form}.onnx"
    quantize_static(
        source,
        path,
        _Images(),
        quant_format=QuantFormat.QDQ if form.layout == "qdq" else QuantFormat.QOperator,
        activation_type=kinds[form.activations],
        weight_type=kinds[form.kind],
        per_channel=form.by_channel,
        reduce_range=form.reduced,
        extra_options={"ActivationSymmetric": form.symmetric},
    )
    return path


def dynamic(folder: Path, *, by_channel: bool) -> Path:
    """The file of the network with ranges that are found at run time."""
    path = folder / "dynamic.onnx"
    # onnxruntime has integer convolutions for activations and weights without a sign only.
    quantize_dynamic(_source(folder), path, per_channel=by_channel, weight_type=QuantType.QUInt8)
    return path


def _source(folder: Path) -> Path:
    path = folder / "float.onnx"
    onnx.save(float_network(), path)
    return path

"""Quantised operators on odd shapes; results are quantised values, or floats from operators that return floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, weights

QUANTISED: dict[str, Callable[[], ModelProto]] = {}
DYNAMIC: dict[str, Callable[[], ModelProto]] = {}

_KINDS = {"int8": (np.int8, TensorProto.INT8), "uint8": (np.uint8, TensorProto.UINT8)}


def _integers(kind: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(_KINDS[kind][0])
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype=_KINDS[kind][0], endpoint=True)


def _parameters(kind: str, *names: str) -> dict[str, Any]:
    """A scale ``<name>s`` and a zero point ``<name>z`` for each name, all different."""
    found: dict[str, Any] = {}
    for index, name in enumerate(names):
        found[f"{name}s"] = np.float32(0.02 + 0.01 * index)
        found[f"{name}z"] = _KINDS[kind][0](index * 3 + (0 if kind == "int8" else 117))
    return found


def _quantised(
    kind: str, item: NodeProto, shapes: dict[str, tuple[int, ...]], constants: dict[str, Any], *names: str
) -> ModelProto:
    element = _KINDS[kind][1]
    inputs = [(name, shape, element) for name, shape in shapes.items()]
    merged = {**_parameters(kind, *(names or (*shapes, "y"))), **constants}
    return model([item], inputs, [("y", None, element)], merged)


def _unary(operator: str, kind: str, shape: tuple[int, ...], **attributes: Any) -> ModelProto:
    item = node(operator, ["x", "xs", "xz", "ys", "yz"], ["y"], domain=MS, **attributes)
    return _quantised(kind, item, {"x": shape}, {})


def _binary(operator: str, kind: str) -> ModelProto:
    item = node(operator, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"], domain=MS)
    return _quantised(kind, item, {"a": (2, 3, 5), "b": (3, 1)}, {})


def _conv(kind: str, per_channel: bool) -> ModelProto:
    item = node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 0, 2, 1], group=2)
    scales = np.abs(weights(6, scale=0.01)) + 1e-3 if per_channel else np.array([0.01], np.float32)
    constants = {
        "w": _integers("int8", 6, 2, 3, 2),
        "ws": scales,
        "wz": np.zeros(len(scales), np.int8),
        "ys": np.float32(0.5),
        "b": np.random.default_rng(1).integers(-3000, 3000, 6, dtype=np.int32),
    }
    return _quantised(kind, item, {"x": (1, 4, 7, 5)}, constants)


def _matmul(kind: str, shape: tuple[int, ...], per_column: bool) -> ModelProto:
    item = node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    scales = np.abs(weights(9, scale=0.01)) + 1e-3 if per_column else np.float32(0.01)
    constants = {
        "w": _integers("int8", 13, 9),
        "ws": scales,
        "wz": np.zeros(9, np.int8) if per_column else np.int8(0),
        "ys": np.float32(0.5),
    }
    return _quantised(kind, item, {"x": shape}, constants)


def _gemm(kind: str, returns_float: bool) -> ModelProto:
    names = ["x", "xs", "xz", "w", "ws", "wz", "b", *([] if returns_float else ["ys", "yz"])]
    item = node("QGemm", names, ["y"], domain=MS, transB=1, alpha=0.5)
    constants = {
        "w": _integers("int8", 9, 13),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "b": np.random.default_rng(1).integers(-3000, 3000, 9, dtype=np.int32),
        "ys": np.float32(0.5),
    }
    built = _quantised(kind, item, {"x": (4, 13)}, constants)
    if returns_float:
        built.graph.output[0].type.tensor_type.elem_type = FLOAT
    return built


def _concat(kind: str) -> ModelProto:
    item = node("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], ["y"], domain=MS, axis=1)
    return _quantised(kind, item, {"a": (2, 3, 5), "b": (2, 4, 5)}, {})


def _where(kind: str) -> ModelProto:
    item = node("QLinearWhere", ["c", "a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"], domain=MS)
    condition = np.random.default_rng(3).random((2, 3, 5)) > 0.5
    return _quantised(kind, item, {"a": (2, 3, 5), "b": (2, 3, 5)}, {"c": condition}, "a", "b", "y")


for _kind in _KINDS:
    for _channel in (False, True):
        QUANTISED[f"conv_{_kind}_{'channel' if _channel else 'tensor'}"] = lambda k=_kind, c=_channel: _conv(k, c)  # type: ignore[misc]
        QUANTISED[f"matmul_{_kind}_{'column' if _channel else 'tensor'}"] = lambda k=_kind, c=_channel: _matmul(  # type: ignore[misc]
            k, (5, 13), c
        )
    QUANTISED[f"gemm_{_kind}"] = lambda k=_kind: _gemm(k, False)  # type: ignore[misc]
    QUANTISED[f"add_{_kind}"] = lambda k=_kind: _binary("QLinearAdd", k)  # type: ignore[misc]
    QUANTISED[f"mul_{_kind}"] = lambda k=_kind: _binary("QLinearMul", k)  # type: ignore[misc]
    QUANTISED[f"sigmoid_{_kind}"] = lambda k=_kind: _unary("QLinearSigmoid", k, (3, 7))  # type: ignore[misc]
    QUANTISED[f"leakyrelu_{_kind}"] = lambda k=_kind: _unary("QLinearLeakyRelu", k, (3, 7), alpha=0.1)  # type: ignore[misc]
    QUANTISED[f"concat_{_kind}"] = lambda k=_kind: _concat(k)  # type: ignore[misc]
    QUANTISED[f"global_pool_{_kind}"] = lambda k=_kind: _unary("QLinearGlobalAveragePool", k, (2, 3, 5, 7))  # type: ignore[misc]
    QUANTISED[f"pool_{_kind}"] = lambda k=_kind: _unary(  # type: ignore[misc]
        "QLinearAveragePool", k, (2, 3, 7, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]
    )
    QUANTISED[f"where_{_kind}"] = lambda k=_kind: _where(k)  # type: ignore[misc]
QUANTISED["matmul_batched"] = lambda: _matmul("uint8", (2, 5, 13), False)
QUANTISED["global_pool_nhwc"] = lambda: _unary("QLinearGlobalAveragePool", "uint8", (2, 5, 7, 3), channels_last=1)
QUANTISED["softmax"] = lambda: _unary("QLinearSoftmax", "int8", (2, 3, 7), axis=-1, opset=13)

DYNAMIC["gemm_float"] = lambda: _gemm("int8", True)
DYNAMIC["dynamic_matmul"] = lambda: model(
    [node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"], ["y"], domain=MS)],
    [("x", (4, 13), FLOAT)],
    ["y"],
    {"w": _integers("int8", 13, 9), "ws": np.abs(weights(9)), "wz": np.zeros(9, np.int8), "b": weights(9)},
)
DYNAMIC["matmul_integer_to_float"] = lambda: model(
    [node("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz", "b"], ["y"], domain=MS)],
    [("x", (4, 13), TensorProto.UINT8)],
    ["y"],
    {
        **{"w": _integers("int8", 13, 9), "xs": np.float32(0.1), "xz": np.uint8(99)},
        **{"ws": np.float32(0.2), "wz": np.int8(3), "b": weights(9)},
    },
)

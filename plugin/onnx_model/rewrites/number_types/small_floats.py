"""Floats of 8 and 4 bits as the codes that store them, converted by tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.walk import describe_node

SMALL_FLOATS: dict[int, Any] = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


@dataclass(frozen=True)
class _Rounding:
    """How float32 becomes a small float.

    Attributes:
        thresholds: ascending; a magnitude's index is how many of them it reaches.
        positive: code of each index.
        negative: code of each index, for negative values.
        invalid: code of not-a-number.
    """

    thresholds: Array
    positive: Array
    negative: Array
    invalid: int


def decode(emit: Emitter, codes: str, element: int) -> str:
    """The float32 values of codes in uint8."""
    count = 16 if element == TensorProto.FLOAT4E2M1 else 256
    with np.errstate(all="ignore"):
        values = np.arange(count, dtype=np.uint8).view(SMALL_FLOATS[element]).astype(np.float32)
    index = emit("Cast", codes, part="index", to=TensorProto.INT32)
    return emit("Gather", emit.constant(values, "values"), index, part="decode", axis=0)


def encode(emit: Emitter, value: str, element: int, *, saturate: bool) -> str:
    """The uint8 codes of the small floats nearest to float32 values; ties go to the even code.

    Args:
        emit: takes the nodes.
        value: name of the float32 tensor.
        element: the small float's ONNX type.
        saturate: whether what is too large becomes the largest value, and not infinite or not-a-number.
    """
    rounding = _scale_rounding() if element == TensorProto.FLOAT8E8M0 else _rounding(element, saturate)
    spread = emit("Unsqueeze", emit("Abs", value, part="abs"), emit.constant([-1], "last"), part="spread")
    reached = emit("GreaterOrEqual", spread, emit.constant(rounding.thresholds, "thresholds"), part="reached")
    counted = emit("Cast", reached, part="counted", to=TensorProto.INT32)
    index = emit("ReduceSum", counted, emit.constant([-1], "axis"), part="index", keepdims=0)
    positive = emit("Gather", emit.constant(rounding.positive, "positive"), index, part="positive", axis=0)
    negative = emit("Gather", emit.constant(rounding.negative, "negative"), index, part="negative", axis=0)
    below = emit("Less", value, emit.constant(0.0, "zero", np.float32), part="below")
    signed = emit("Where", below, negative, positive, part="signed")
    invalid = emit.constant(rounding.invalid, "invalid", np.int32)
    chosen = emit("Where", emit("IsNaN", value, part="is_nan"), invalid, signed, part="chosen")
    return emit("Cast", chosen, part="codes", to=TensorProto.UINT8)


def check_rounding(emit: Emitter, mode: str) -> None:
    """Raise UnsupportedModelError for a way of rounding scales that is not known."""
    if mode != "up":
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} rounds to float8e8m0 in mode '{mode}', which is not supported; use 'up'"
        )


@cache
def _rounding(element: int, saturate: bool) -> _Rounding:
    dtype = SMALL_FLOATS[element]
    half = 8 if element == TensorProto.FLOAT4E2M1 else 128
    with np.errstate(all="ignore"):
        values = np.arange(half, dtype=np.uint8).view(dtype).astype(np.float32)
        finite = values[np.isfinite(values)]
        middles = (finite[1:] + finite[:-1]) / 2
        thresholds = [_threshold(middle, index + 1, dtype) for index, middle in enumerate(middles)]
        codes = list(range(len(finite)))
        overflow = _code(np.float32(np.inf), dtype)
        if not saturate and overflow != codes[-1]:
            last = finite[-1] + (finite[-1] - finite[-2]) / 2
            thresholds.append(_threshold(last, overflow, dtype))
            codes.append(overflow)
        negative = [_code(-value, dtype) for value in finite] + ([overflow | half] if len(codes) > len(finite) else [])
        return _Rounding(
            np.array(thresholds, np.float32),
            np.array(codes, np.int32),
            np.array(negative, np.int32),
            _code(np.float32(np.nan), dtype),
        )


@cache
def _scale_rounding() -> _Rounding:
    """Powers of two, rounded up; there are no negative ones."""
    with np.errstate(all="ignore"):
        values = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    codes = np.arange(255, dtype=np.int32)
    return _Rounding(np.nextafter(values[:-1], np.float32(np.inf)), codes, codes, 255)


def _threshold(middle: np.float32, code: int, dtype: Any) -> np.float32:
    """The smallest float32 that is rounded to ``code``, which is the middle between two values or what follows it."""
    is_up = _code(middle, dtype) == code
    return middle if is_up else np.nextafter(middle, np.float32(np.inf))


def _code(value: np.float32, dtype: Any) -> int:
    return int(np.array([value], np.float32).astype(dtype).view(np.uint8)[0])

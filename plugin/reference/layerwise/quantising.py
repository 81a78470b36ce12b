"""QuantizeLinear and what else rounds to integers, by its definition in ONNX, with bounds on the integers.

No product of integers is computed here by an instruction that may saturate: dequantised numbers are multiplied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import attributes
from sartor.reference.layerwise.bounded import ROUNDOFF, Bounded, is_real
from sartor.runtime.driver.signature import Array

# A quotient is rounded, and so is the scale where several are multiplied.
_QUOTIENT_ROUNDINGS = 4.0
_LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def quantised(node: NodeProto, operands: list[Bounded | None]) -> list[Bounded] | None:
    """The integers of a QuantizeLinear; None for a type that is no integer."""
    number, scale, zero = _parameters(node, operands)
    settings = attributes(node)
    kind = _integer_type(zero.dtype if zero is not None else settings.get("output_dtype", TensorProto.UINT8))
    if kind is None:
        return None
    shape, axis, block = number.value.shape, settings.get("axis", 1), settings.get("block_size", 0)
    step = _spread(scale, shape, axis, block).astype(np.float64)
    shift = 0.0 if zero is None else _spread(zero, shape, axis, block).astype(np.float64)
    with np.errstate(all="ignore"):
        quotient = number.value / _spread(scale, shape, axis, block)
    return [rounded(number, quotient, step, shift, kind)]


def rounded(number: Bounded, quotient: Array, step: Array, shift: Array | float, kind: np.dtype[Any]) -> Bounded:
    """A quotient rounded to integers: those next to a tie may be rounded to either side."""
    low, high = _LIMITS.get(kind.name) or (np.iinfo(kind).min, np.iinfo(kind).max)

    def integers(values: Array) -> Array:
        return np.clip(np.rint(values.astype(np.float64)) + shift, low, high)

    with np.errstate(all="ignore"):
        real = number.value.astype(np.float64) / step
        moved = _QUOTIENT_ROUNDINGS * ROUNDOFF * np.abs(real)
        if number.error is not None:
            moved = moved + number.error / step
        right, least, most = integers(quotient), integers(real - moved), integers(real + moved)
    error = np.maximum(np.abs(most - right), np.abs(right - least)).astype(np.float32)
    value = np.nan_to_num(right).astype(np.int64).astype(kind)
    if not np.any(error):
        return Bounded(value)
    return Bounded(value, np.nan_to_num(error), span=(np.nan_to_num(least), np.nan_to_num(most)))


def dequantised(node: NodeProto, operands: list[Bounded | None]) -> list[Bounded] | None:
    """The numbers that integers stand for; None for a type that is no integer."""
    number, scale, zero = _parameters(node, operands)
    if _integer_type(number.value.dtype) is None:
        return None
    shape, settings = number.value.shape, attributes(node)
    axis, block = settings.get("axis", 1), settings.get("block_size", 0)
    step = _spread(scale, shape, axis, block)
    whole = number.value.astype(np.float64)
    if zero is not None:
        whole = whole - _spread(zero, shape, axis, block).astype(np.float64)
    kind = scale.dtype
    if declared := settings.get("output_dtype"):
        kind = helper.tensor_dtype_to_np_dtype(declared)
    value = (whole * step.astype(np.float64)).astype(kind)
    if number.error is None:
        return [Bounded(value)]
    error = (number.error * np.abs(step)).astype(np.float32)
    if number.span is None:
        return [Bounded(value, error)]
    moved = [(value + (end - number.value) * step.astype(np.float64)) for end in number.span]
    return [Bounded(value, error, span=(np.minimum(*moved), np.maximum(*moved)))]


def dynamically_quantised(operands: list[Bounded | None], results: list[Array]) -> list[Bounded]:
    """Results of a DynamicQuantizeLinear with bounds: its scale is rounded, and may be that of moved ends."""
    (number,) = (operand for operand in operands if operand is not None)
    integers, scale, zero = results
    ends = 0.0 if number.error is None else 2.0 * float(np.max(number.error, initial=0.0))
    moved = np.asarray(_QUOTIENT_ROUNDINGS * ROUNDOFF * np.abs(scale) + ends / 255.0, np.float32)
    step = np.asarray(scale, np.float64)
    with np.errstate(all="ignore"):
        quotient = number.value / scale
        other = np.abs(number.value) * moved / step
    far = other if number.error is None else other + number.error
    output = rounded(Bounded(number.value, far), quotient, step, float(zero), integers.dtype)
    return [replace(output, value=integers), Bounded(scale, moved, is_exact=False), Bounded(zero)]


def product_of_integers(operands: list[Bounded | None], result: np.dtype[Any]) -> list[Bounded]:
    """A MatMulInteger. Sums of integers are exact in float64."""
    (left, right), zeros = _pair(operands), operands[2:]
    first, second = (_less_zero(*pair) for pair in zip((left, right), _zeros(zeros, left, right), strict=True))
    value = np.asarray(np.matmul(first, second))
    error = None
    if left.error is not None:
        error = np.matmul(left.error.astype(np.float64), np.abs(second))
    if right.error is not None:
        other = np.matmul(np.abs(first), right.error.astype(np.float64))
        error = other if error is None else error + other
    return [Bounded(value.astype(result), None if error is None else error.astype(np.float32))]


def _pair(operands: list[Bounded | None]) -> tuple[Bounded, Bounded]:
    left, right = operands[:2]
    if left is None or right is None:
        raise ValueError("a product lacks an operand")
    return left, right


def _zeros(zeros: list[Bounded | None], left: Bounded, right: Bounded) -> tuple[Array | None, Array | None]:
    given = [zero.value if zero is not None else None for zero in zeros] + [None, None]
    first, second = given[:2]
    # One for each row of the first operand, or for each column of the second one.
    if first is not None and first.ndim == 1 and first.size > 1 and left.value.ndim > 1:
        first = first.reshape(-1, 1)
    return first, second


def _less_zero(operand: Bounded, zero: Array | None) -> Array:
    whole = operand.value.astype(np.float64)
    return whole if zero is None else whole - zero.astype(np.float64)


def _parameters(node: NodeProto, operands: list[Bounded | None]) -> tuple[Bounded, Array, Array | None]:
    number, scale, *others = operands
    if number is None or scale is None:
        raise ValueError(f"'{node.name}' lacks an operand")
    zero = others[0] if others else None
    return number, scale.value, None if zero is None else zero.value


def _integer_type(kind: Any) -> np.dtype[Any] | None:
    """The type if it is one of integers; ``kind`` may be ONNX's number of it."""
    dtype = kind if isinstance(kind, np.dtype) else helper.tensor_dtype_to_np_dtype(kind or TensorProto.UINT8)
    return dtype if dtype.kind in "iu" or dtype.name in _LIMITS else None


def _spread(parameter: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """A scale or zero point in a shape that broadcasts with the tensor."""
    if block:
        repeated = np.repeat(parameter.astype(np.float32), block, axis=axis)
        cut = [slice(0, size) for size in shape]
        return np.asarray(repeated[tuple(cut)])
    if parameter.ndim == 0 or parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if index == axis % len(shape) else 1 for index in range(len(shape))])


def holds_integers(array: Array) -> bool:
    """Whether an array holds integers, also of few bits."""
    return not is_real(array) and (array.dtype.kind in "iu" or array.dtype.name in _LIMITS)

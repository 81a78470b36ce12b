"""Results that differ on purpose, or where those that are compared with differ from one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tools.extremes.results import Results, exact_each
from tools.extremes.values import TYPES, Array

_MOST_BITS = 64
"""Exponents above this have powers of -1, 0 and 1 alone in any type."""
_LARGEST_EXPONENT = 62
"""From here on Sartor takes powers of integers by 62 or 63."""


@dataclass(frozen=True)
class Deviation:
    """Some results of an operator that are right, or accepted, though nothing agrees with them.

    Attributes:
        reason: follows "as".
        covers: which results it explains.
    """

    reason: str
    covers: Callable[[Results], Array]


def _exact_power(base: int, exponent: int) -> int | None:
    """The power, rounded towards 0; None if there is none. Of long exponents one that is as large, and as odd."""
    if exponent < 0:
        return int(base**-exponent) if abs(base) == 1 else None if base == 0 else 0
    return int(base ** (exponent if exponent <= _MOST_BITS else _MOST_BITS + exponent % 2))


def _right_power(results: Results) -> Array:
    return results.of_pairs(lambda base, exponent, result: result == _exact_power(base, exponent))


def _wrapped_power(results: Results) -> Array:
    def holds(base: int, exponent: int, result: int) -> bool:
        exact = _exact_power(base, exponent)
        if exact is None or not results.is_outside(exact):
            return exact is None and result == 0
        known = exponent if exponent < _LARGEST_EXPONENT else _LARGEST_EXPONENT + exponent % 2
        return result == results.wrapped(base**known)

    return results.of_pairs(holds)


def _wrapped_squares(results: Results) -> Array:
    def holds(row: list[int], result: int) -> bool:
        exact = sum(value**2 for value in row)
        return results.is_outside(exact) and result == results.wrapped(exact)

    return results.of_rows(holds)


def _large_norm(results: Results) -> Array:
    return results.of_rows(lambda row, _: results.is_outside(math.sqrt(sum(value**2 for value in row))))


def _large_log_sum_exp(results: Results) -> Array:
    def holds(row: list[int], _: int) -> bool:
        most = max(row)
        return results.is_outside(most + math.log(sum(math.exp(value - most) for value in row)))

    return results.of_rows(holds)


def _mean_of_wrapped_sum(results: Results) -> Array:
    def holds(row: list[int], result: int) -> bool:
        total = results.wrapped(sum(row))
        return result == (abs(total) // len(row)) * (1 if total >= 0 else -1)

    return results.of_rows(holds)


def _far(value: float) -> Callable[[Results], Array]:
    """Angles that are taken for 0, of which the result is a value."""

    def covers(results: Results) -> Array:
        sizes = np.abs(results.operands[0])
        return np.asarray((sizes >= 2.0**26) & np.isfinite(sizes) & (results.actual == value))

    return covers


def _near_half_turns(function: Callable[[float], float]) -> Callable[[Results], Array]:
    def covers(results: Results) -> Array:
        angles = results.operands[0]
        exact = exact_each(function, angles)
        return (np.abs(angles) > 1) & (np.abs(exact) < 1e-3) & results.is_near(exact, 5e-7)

    return covers


def _cancelling_erf(results: Results) -> Array:
    values = results.operands[0].astype(np.float64)
    exact = exact_each(lambda value: value * math.erfc(-value / math.sqrt(2)) / 2, values)
    return (values < 0) & results.is_near(exact, 2.0**-23 * np.abs(values))


def _exact_hard_swish(results: Results) -> Array:
    values = results.operands[0]
    exact = values * np.clip(values / 6 + 0.5, 0, 1)
    return results.is_near(exact, 1e-12 * np.abs(exact))


def _fused_hard_sigmoid(results: Results) -> Array:
    exact = np.clip(float(np.float16(0.2)) * results.operands[0].astype(np.float64) + 0.5, 0, 1)
    return results.is_near(exact, np.abs(exact) * 2.0**-11)


def _large_quotient(results: Results) -> Array:
    value, divisor = (np.abs(operand.astype(np.float64)) for operand in results.operands)
    is_large = np.isfinite(value) & (divisor > 0) & (value >= 2.0**46 * divisor)
    return np.asarray(is_large & (results.actual == 0))


def _zero(results: Results) -> Array:
    return np.asarray((results.operands[0] == 0) & (results.actual == 0))


def _half_of_smallest(results: Results) -> Array:
    base, exponent = results.operands
    smallest = np.finfo(exponent.dtype).tiny
    return np.asarray((base == -1) & (np.abs(exponent) < 2 * smallest) & (results.actual == 1))


_INTEGERS = ("int32", "int64")
_POWERS = Deviation(
    "powers that are not of the type wrap around; ONNX leaves them open, ONNX Runtime takes the nearest", _wrapped_power
)
_LONG_POWERS = Deviation("powers are exact; ONNX Runtime rounds them to float64", _right_power)
_LARGE = "a result that float64 rounds to what is not of the type is left open; ONNX Runtime takes the nearest"
_SQUARES = Deviation(
    "sums that are not of the type wrap around; ONNX Runtime takes the nearest integer", _wrapped_squares
)
_MEAN = Deviation(
    "sums wrap around, and means of what is left are exact; others round them to float64", _mean_of_wrapped_sum
)
_FAR = "angles from 2**26 on are taken for 0"
_NEAR = "near half turns errors are those of results near 1"
_REMAINDERS = Deviation("quotients from 2**46 on leave 0", _large_quotient)
_ERF = Deviation("1 + erf(x) keeps no digit near -3", _cancelling_erf)

DEVIATIONS: Mapping[tuple[str, str], tuple[Deviation, ...]] = {
    ("Pow", "int32"): (_POWERS,),
    ("Pow", "int64"): (_POWERS, _LONG_POWERS),
    **{("ReduceL2", kind): (Deviation(_LARGE, _large_norm),) for kind in _INTEGERS},
    **{("ReduceLogSumExp", kind): (Deviation(_LARGE, _large_log_sum_exp),) for kind in _INTEGERS},
    ("ReduceMean", "int64"): (_MEAN,),
    ("ReduceSumSquare", "int32"): (_SQUARES,),
    ("Cos", "float32"): (Deviation(_FAR, _far(1)),),
    ("Gelu", "float32"): (_ERF,),
    ("HardSigmoid", "float16"): (
        Deviation("AVX512-FP16 multiplies and adds with one rounding, by a fifth in f16", _fused_hard_sigmoid),
    ),
    ("HardSwish", "float64"): (Deviation("the evaluator's sixth is that of float32", _exact_hard_swish),),
    **{("Mod of C", kind): (_REMAINDERS,) for kind in ("float32", "float64")},
    ("PRelu", "float64"): (
        Deviation("0 is not below 0, and so returned as it is; the evaluator multiplies by the slope", _zero),
    ),
    ("Pow", "float32"): (Deviation("half of the least exponent is subnormal, and counts as 0", _half_of_smallest),),
    ("Sin", "float32"): (Deviation(_FAR, _far(0)), Deviation(_NEAR, _near_half_turns(math.sin))),
    ("Tan", "float32"): (Deviation(_FAR, _far(0)), Deviation(_NEAR, _near_half_turns(math.tan))),
}
"""Why results that nothing agrees with are right, by operator and type; those that none covers are wrong."""

_DOUBLE = "IREE 3.13 lacks the function in float64"
_UNSIGNED = "IREE 3.13 lacks the operator in this unsigned type"
_DOUBLES = ("Acos", "Asin", "Atan", "Cos", "Erf", "Gelu", "Mish", "Mod", "Sin", "Tan", "Tanh")
_WORDS = (
    *("CumSum", "PRelu", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
    *("ReduceSumSquare", "Sign"),
)
REFUSALS: Mapping[tuple[str, str], str] = {
    **{(name, "float64"): _DOUBLE for name in _DOUBLES},
    **{(name, kind): _UNSIGNED for name in _WORDS for kind in ("uint32", "uint64")},
    ("ReduceSum", "uint64"): _UNSIGNED,
    ("Sign", "uint16"): _UNSIGNED,
    **{("Shrink", kind): "IREE 3.13 lacks it for integers" for kind in TYPES if "int" in kind},
    ("Cast int16", "int16"): "IREE 3.13 lacks a cast of int16 to itself",
}
"""Why a case is refused, by operator and type; any other refusal is a fault."""

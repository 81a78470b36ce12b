"""Results that differ on purpose, or where those that are compared with differ from one another."""

from __future__ import annotations

from collections.abc import Mapping

_BEYOND = "the exact result is no value of the type, where ONNX leaves it open; ONNX Runtime takes the nearest"
_LOGARITHMS = "logarithms of integers are rounded towards 0; ONNX Runtime adds integers that it rounded before"
_FAR = "angles from 2**26 on are taken for 0"
_MANY = "remainders of quotients from 2**24 on are not exact"
_NOTHING = "0 is not below 0, and so returned as it is; ONNX's evaluator multiplies by the slope"
_SUBNORMAL = "subnormal numbers count as 0"
_ORDER = "sums that cancel depend on their order, which is that of a tree here"
_CANCELS = "1 + erf(x) keeps no digit near -3, and the result is nothing beside that of other values"
_SHORT = "the evaluator's constants are those of float32"

DEVIATIONS: Mapping[tuple[str, str], str] = {
    **{(name, kind): _BEYOND for name in ("Pow", "ReduceL2", "ReduceSumSquare") for kind in ("int32", "int64")},
    ("ReduceMean", "int64"): "ONNX Runtime and ONNX's evaluator round the mean to float64",
    **{(name, kind): _LOGARITHMS for name in ("ReduceLogSum", "ReduceLogSumExp") for kind in ("int32", "int64")},
    **{(name, "float32"): _FAR for name in ("Cos", "Sin", "Tan")},
    ("CumSum", "float64"): _ORDER,
    ("Gelu", "float32"): _CANCELS,
    ("HardSwish", "float64"): _SHORT,
    ("Mod of C", "float16"): _MANY,
    ("Mod of C", "float32"): _MANY,
    ("PRelu", "float64"): _NOTHING,
    ("Pow", "float32"): _SUBNORMAL,
    ("Selu", "float64"): _SHORT,
}
"""Why a case that is wrong by comparison is right, by operator and type."""

"""The values at which arithmetic goes wrong: limits of a type, halves, infinities, and what float32 cannot hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TYPES = (
    *("float32", "float64", "float16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
_REALS = (
    *(0.0, 1.0, 0.5, 1.5, 2.5, 3.7, 10.0, 17.0, 88.0, 89.0, 104.0, 1e-3, 6.1e-5, 0.9995, math.pi),
    *(1e4, 6e4, math.inf, math.nan),
)
_WIDE = (1.2345e5, 3e5, 1e7, 1e-20, 1e20, 1e38, 3.4e38, 1.1754944e-38, 2.0**24 + 1, 0.99999994, 1.0000001)
_DOUBLE = (1e-300, 1e300, 1 / 3, 2.0**53 + 1, 709.0, 745.0)
_COUNTS = (0, 1, 2, 3, 7, 100, 2**24 + 1)


def extremes(name: str) -> Array:
    """A type's values of interest, one-dimensional."""
    kind = np.dtype(name)
    if kind.kind == "b":
        return np.array([True, False])
    if kind.kind == "f":
        sizes = np.array([*_REALS, *(_WIDE if kind.itemsize > 2 else ()), *(_DOUBLE if kind.itemsize > 4 else ())])
        return np.concatenate([sizes, -sizes]).astype(kind)
    limits = np.iinfo(kind)
    counts = [*_COUNTS, limits.max, limits.max - 1, limits.max // 2, limits.max // 3 + 1]
    values = [value for count in counts for value in (count, -count) if limits.min <= value <= limits.max]
    return np.array([*dict.fromkeys([*values, limits.min])], kind)


def finite(values: Array) -> Array:
    """The values that sums and exponentials are taken of; integers as they are."""
    return values[np.isfinite(values)] if values.dtype.kind == "f" else values


def convertible(values: Array, name: str) -> Array:
    """The values that a cast to another type has a defined result for."""
    kind = np.dtype(name)
    if values.dtype.kind != "f" or kind.kind not in "iu":
        return values
    limits = np.iinfo(kind)
    wide = finite(values).astype(np.float64)
    return finite(values)[(wide > float(limits.min) - 1) & (wide < float(limits.max) + (limits.bits < 53))]


def pairs(operator: str, name: str) -> tuple[Array, Array]:
    """Each value beside each other one, but for those without a result."""
    first, second = (each.ravel() for each in np.meshgrid(extremes(name), extremes(name)))
    kind = np.dtype(name)
    if operator == "BitShift":
        with np.errstate(all="ignore"):
            return first, (second % (kind.itemsize * 8)).astype(kind)
    if operator in ("Div", "Mod") and kind.kind in "iu":
        has_result = second != 0
        if kind.kind == "i":
            # ONNX Runtime's process ends by a signal.
            has_result &= ~((second == -1) & (first == np.iinfo(kind).min))
        return first[has_result], second[has_result]
    return first, second


def rows(values: Array, length: int = 5) -> Array:
    """Values to reduce: neighbours, and each of them alone, in rows."""
    values = np.resize(finite(values), max(length, finite(values).size))
    return np.array(
        [*(np.roll(values, step)[:length] for step in range(values.size)), *([[v] * length for v in values])]
    )

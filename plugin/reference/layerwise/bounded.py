"""Values with bounds on what rounding may have changed in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sartor.runtime.driver.signature import Array

ROUNDOFF = 2.0**-24
"""Unit roundoff of f32."""

_HALF_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
# Errors of n roundings add to this multiple of the root of n with a probability below 1e-9 (Higham and Mary 2019, A new
# approach to probabilistic rounding error analysis, theorem 2.4).
_LIKELY = 7.0
_OTHER_ROUNDINGS = 3
# What is right may be off by the bound, and so may what it is compared with.
_BOTH = 2.0


@dataclass(frozen=True, eq=False)
class Bounded:
    """A tensor as the user's nodes define it.

    Attributes:
        value: computed by the reference.
        error: for each element how far a right value may be from ``value``; None if they must be equal.
        span: the smallest and the largest right value of each element, where rounding decided between two; else None,
            and any value within ``error`` is right.
        is_exact: whether the elements are multiples of a step, or moved ones of the sort, so that what differs by less
            than a step is no rounding.
    """

    value: Array
    error: Array | None = None
    is_exact: bool = True
    span: tuple[Array, Array] | None = None


def sum_roundoff(terms: int) -> float:
    """How far two sums of products in any order may be apart, as a fraction of the sum of the products' magnitudes.

    The smaller one of the bound for any errors (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1)
    and of that for errors that are independent.
    """
    count = terms + _OTHER_ROUNDINGS
    return _BOTH * ROUNDOFF * min(count, _LIKELY * math.sqrt(count))


def half_roundoff(array: Array) -> float:
    """The unit roundoff of an array of half precision; 0 for other types."""
    return _HALF_ROUNDOFF.get(array.dtype.name, 0.0)


def is_real(array: Array) -> bool:
    """Whether an array holds floating-point numbers."""
    return array.dtype.kind == "f" or half_roundoff(array) > 0


def finite(error: Array) -> Array:
    """Bounds without those that are infinite, as where magnitudes overflow: there values must be equal."""
    return np.nan_to_num(error, nan=0.0, posinf=0.0, neginf=0.0)

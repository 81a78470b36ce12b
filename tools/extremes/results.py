"""What an operator computed, beside its operands, and the exact results of integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tools.extremes.values import Array


@dataclass(frozen=True)
class Results:
    """The operands of a case and what Sartor computes of them.

    Attributes:
        operands: of the shape of the results, or with rows of which each has one result.
        actual: the results.
    """

    operands: tuple[Array, ...]
    actual: Array

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer of the results' type."""
        found = np.iinfo(self.actual.dtype)
        return int(found.min), int(found.max)

    def is_outside(self, exact: float) -> bool:
        """Whether an exact result is no value of the type, which is one of integers."""
        least, most = self.limits
        return not least <= exact <= most

    def wrapped(self, exact: int) -> int:
        """An integer as the type keeps it, which wraps around at its limits."""
        least, most = self.limits
        return (exact - least) % (most - least + 1) + least

    def of_rows(self, holds: Callable[[list[int], int], bool]) -> Array:
        """Where something holds of a row of integers and its result."""
        rows = self.operands[0].tolist()
        found = [holds(row, result) for row, result in zip(rows, self.actual.ravel().tolist(), strict=True)]
        return np.array(found).reshape(self.actual.shape)

    def of_pairs(self, holds: Callable[[int, int, int], bool]) -> Array:
        """Where something holds of two integers and their result."""
        first, second = (operand.tolist() for operand in self.operands)
        return np.array([holds(*each) for each in zip(first, second, self.actual.tolist(), strict=True)])

    def is_near(self, exact: Array, bound: Array | float) -> Array:
        """Where results, of floats, differ from the exact ones by no more than a bound."""
        return np.asarray(np.abs(self.actual.astype(np.float64) - exact) <= bound)


def exact_each(function: Callable[[float], float], values: Array) -> Array:
    """A function of each number, in float64; NaN of what has no result."""
    return np.array([function(value) if math.isfinite(value) else math.nan for value in values.tolist()])

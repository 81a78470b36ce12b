"""Facts about a kernel's vectors, found while it is emitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sartor.codegen.mlir.iree_compiler import ir

# Far below the largest number of f32, so that no rounding reaches that.
_LARGE = 2.0**120


class Scaled(NamedTuple):
    """The operands of a product."""

    number: ir.Value
    factor: ir.Value


class Clipped(NamedTuple):
    """A vector that is bounded on one side, the constant that it is bounded by, and whether NaN in it is kept."""

    number: ir.Value
    bound: ir.Value
    is_least: bool
    keeps_nan: bool = False


@dataclass
class Known:
    """Facts about vectors of f32, by vector.

    Attributes:
        constants: the value of all elements.
        integers: vectors whose elements are all integers.
        rounded: vectors that were rounded to nearest, by what they became.
        scaled: sums of integers, and the vector that multiplies them.
        multiples: integers, and the constant that multiplies them.
        clipped: vectors that are bounded on one side.
    """

    constants: dict[ir.Value, float] = field(default_factory=dict)
    integers: set[ir.Value] = field(default_factory=set)
    rounded: dict[ir.Value, ir.Value] = field(default_factory=dict)
    scaled: dict[ir.Value, Scaled] = field(default_factory=dict)
    multiples: dict[ir.Value, Scaled] = field(default_factory=dict)
    clipped: dict[ir.Value, Clipped] = field(default_factory=dict)

    def is_integer(self, value: ir.Value) -> bool:
        """Whether all elements are integers."""
        return value in self.integers or (value in self.constants and self.constants[value].is_integer())

    def is_finite(self, value: ir.Value, divisor: float) -> bool:
        """Whether all elements are bounded on both sides, so that their quotients by ``divisor`` are finite."""
        outer = self.clipped.get(value)
        inner = None if outer is None else self.clipped.get(outer.number)
        if outer is None or inner is None or outer.is_least == inner.is_least:
            return False
        return all(abs(self.constants[loop.bound]) / divisor < _LARGE for loop in (outer, inner))

    def unclipped(self, value: ir.Value) -> ir.Value:
        """The vector that ``value`` was before it was bounded."""
        while value in self.clipped:
            value = self.clipped[value].number
        return value

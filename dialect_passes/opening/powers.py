"""Numbers that are powers of sizes: inverses, and roots, as what scales scores of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# How far a number may be from the power by its rounding; those of models are rounded to f32, whatever their type.
_ROUNDING: Mapping[str, float] = {"f16": 2.0**-11, "bf16": 2.0**-8}
_USUAL_ROUNDING = 2.0**-23
_MOST = 2.0**31


@dataclass(frozen=True)
class Power:
    """A power of a size.

    Attributes:
        roots: how many square roots are taken of it.
        is_inverse: whether one is divided by that.
    """

    roots: int
    is_inverse: bool

    def size_of(self, number: float, kind: str) -> int | None:
        """The size that a number of this type is the power of; None if it is of none."""
        exponent = (-1.0 if self.is_inverse else 1.0) * (1 << self.roots)
        if not 1 / _MOST < number < _MOST:
            return None
        size = round(math.pow(number, exponent))
        if size < 1 or abs(math.pow(size, 1 / exponent) - number) > _ROUNDING.get(kind, _USUAL_ROUNDING) * number:
            return None
        return size


POWERS = (Power(0, is_inverse=True), Power(1, is_inverse=True), Power(1, is_inverse=False), Power(2, is_inverse=True))
"""Those that are looked for, in this order."""

"""Finds what sizes follow from, by their values in two imports of a model for other sizes.

The sizes of the second import are primes, or primes times what a symbol is a multiple of, which the first import has
for none of its symbols. So a size that is a small number in both is a constant, and one formula fits all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol

_MOST_OFFSET = 64
_MOST_FACTORS = 2


@dataclass(frozen=True)
class Fit:
    """The sizes of two imports of a model.

    Attributes:
        symbols: what callers choose; the first import has the largest size of each.
        twin: size of each in the second import, in the same order.
    """

    symbols: tuple[Symbol, ...]
    twin: tuple[int, ...]

    @staticmethod
    def of(symbols: Sequence[Symbol]) -> Fit:
        """The fit by sizes that distinguish what follows from them."""
        return Fit(tuple(symbols), tuple(twin_sizes(symbols)))

    @property
    def twin_sizes(self) -> dict[str, int]:
        """Size of each symbol in the second import, by name."""
        return {symbol.name: size for symbol, size in zip(self.symbols, self.twin, strict=True)}

    def dim(self, one: int, other: int) -> Dim:
        """The size that is ``one`` in the first import and ``other`` in the second.

        Raises:
            ValueError: if no formula fits, or several do.
        """
        if one == other:
            return one
        fitting = [each for part in self._products for each in self._with_factor(part, one, other)]
        fitting = fitting or [each for part in self._products for each in self._with_offset(part, one, other)]
        if len(fitting) != 1:
            what = " or ".join(map(str, fitting)) or "no product of them"
            raise ValueError(f"a size that is {one} or {other} may be {what}")
        return fitting[0]

    @cached_property
    def _products(self) -> tuple[Extent, ...]:
        """The products of symbols that sizes may be multiples of."""
        return tuple(
            Extent(each)
            for count in range(1, _MOST_FACTORS + 1)
            for each in itertools.combinations_with_replacement(sorted(self.symbols), count)
        )

    def _with_factor(self, part: Extent, one: int, other: int) -> Iterator[Extent]:
        factor, rest = divmod(one, part.most)
        if factor and not rest and factor * part.at(self.twin_sizes) == other:
            yield Extent(part.symbols, factor)

    def _with_offset(self, part: Extent, one: int, other: int) -> Iterator[Extent]:
        """The formula with a factor and a small offset, as of a token before a sequence."""
        distance = part.most - part.at(self.twin_sizes)
        factor, rest = divmod(one - other, distance) if distance else (0, 1)
        offset = one - factor * part.most
        if factor > 0 and not rest and 0 < abs(offset) <= _MOST_OFFSET and len(part.symbols) == 1:
            yield Extent(part.symbols, factor, offset)


def twin_sizes(symbols: Sequence[Symbol]) -> list[int]:
    """Sizes for a second import: primes times what each symbol is a multiple of, all of them different.

    They are just below the largest size, as a model may have tables of that length, and above it where that leaves less
    than three, as code for sizes of one leaves dimensions out.
    """
    taken = {each.most for each in symbols}
    found: list[int] = []
    for each in symbols:
        below = range(each.most // each.multiple - 1, 2, -1)
        above = itertools.count(max(3, each.most // each.multiple + 1))
        size = next(
            number * each.multiple
            for number in itertools.chain(below, above)
            if _is_prime(number) and number * each.multiple not in taken
        )
        found.append(size)
        taken.add(size)
    return found


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, math.isqrt(number) + 1))

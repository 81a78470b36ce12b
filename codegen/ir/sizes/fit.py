"""Finds what sizes follow from, by their values in two imports of a model for other sizes.

The sizes of the second import are primes, or primes times what a symbol is a multiple of, which the first import has
for none of its symbols. So one formula fits all sizes that differ. A size that is the same in both may be a constant,
or follow from sizes in another way, as the smaller of a size and 100: a third import, with small sizes, tells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol

_MOST_OFFSET = 64
_MOST_FACTORS = 2


class SeveralFitError(ValueError):
    """Several formulas fit two sizes."""


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

    @staticmethod
    def of_small(symbols: Sequence[Symbol]) -> Fit:
        """The fit by sizes as small as can be, which tell constants from what depends on sizes."""
        return Fit(tuple(symbols), tuple(small_sizes(symbols)))

    @property
    def twin_sizes(self) -> dict[str, int]:
        """Size of each symbol in the second import, by name."""
        return {symbol.name: size for symbol, size in zip(self.symbols, self.twin, strict=True)}

    def dim(self, one: int, other: int) -> Dim:
        """The size that is ``one`` in the first import and ``other`` in the second.

        Raises:
            ValueError: if no formula fits, or several do, which is a ``SeveralFitError``.
        """
        if one == other:
            return one
        fitting = [each for part in self._products for each in self._with_factor(part, one, other)]
        fitting = fitting or [each for part in self._products for each in self._with_offset(part, one, other)]
        if not fitting:
            raise ValueError(f"a size that is {one} or {other} is no product of them")
        if len(fitting) > 1:
            raise SeveralFitError(f"a size that is {one} or {other} may be {' or '.join(map(str, fitting))}")
        return fitting[0]

    @cached_property
    def _products(self) -> tuple[Extent, ...]:
        """The products of symbols that sizes may be multiples of."""
        return _products(self.symbols)

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
        found.append(_first_prime(each, itertools.chain(below, above), taken))
        taken.add(found[-1])
    return found


def small_sizes(symbols: Sequence[Symbol]) -> list[int]:
    """Sizes for a third import: the smallest primes from three on, times what each symbol is a multiple of, such that
    one product of symbols fits what follows from them.
    """
    taken: set[int] = set()
    found: list[int] = []
    for index, each in enumerate(symbols):
        known = symbols[: index + 1]
        for number in itertools.count(max(3, each.least // each.multiple)):
            size = _first_prime(each, itertools.count(number), taken)
            if _tells_products({one.name: small for one, small in zip(known, [*found, size], strict=True)}, known):
                break
        found.append(size)
        taken.add(size)
    return found


def _first_prime(symbol: Symbol, numbers: Iterable[int], taken: Collection[int]) -> int:
    sizes = (number * symbol.multiple for number in numbers if _is_prime(number))
    return next(each for each in sizes if each not in taken)


def _tells_products(sizes: Mapping[str, int], symbols: Sequence[Symbol]) -> bool:
    """Whether no two products of symbols are in the same ratio to those of the largest sizes."""
    ratios = [Fraction(each.at(sizes), each.most) for each in _products(symbols)]
    return len(set(ratios)) == len(ratios)


def _products(symbols: Sequence[Symbol]) -> tuple[Extent, ...]:
    return tuple(
        Extent(each)
        for count in range(1, _MOST_FACTORS + 1)
        for each in itertools.combinations_with_replacement(sorted(symbols), count)
    )


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, math.isqrt(number) + 1))

"""Finds what sizes follow from, by their values in two imports of a model for other sizes.

The sizes of the second import are primes, or primes times what a symbol is a multiple of, which the first import has
for none of its symbols. So one formula fits all sizes that differ. A size that is the same in both may be a constant,
or follow from sizes in another way, as the smaller of a size and 100: a third import, with small sizes, tells.

Multiples of rounded sizes are no such formulas: twice the half of an odd size, rounded up, is that size and one, and
primes are odd. So where a rounded size is known, other sizes are that with an offset, or known as well, or refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count, Dim, Extent, Symbol, adjacent_counts, count_of, sum_of, symbols_in

_MOST_OFFSET = 64
# So many steps are an eighth of a size apart by several, whatever is rounded.
_DISTANT = 24
_MOST_FACTORS = 2
_MOST_TERMS = 3
# Known sizes and symbols of which sums are looked for.
_MOST_SUMMED = 12


_Formula = TypeVar("_Formula", bound=Count)


class SeveralFitError(RejectionError):
    """Several formulas fit two sizes."""


@dataclass(frozen=True)
class Fit:
    """The sizes of two imports of a model.

    Attributes:
        symbols: what callers choose; the first import has the largest size of each.
        twin: size of each in the second import, in the same order.
        known: sizes that others are likely to be, or to be a multiple of.
        counts: numbers of elements that other numbers, as distances in memory, are likely to be.
    """

    symbols: tuple[Symbol, ...]
    twin: tuple[int, ...]
    known: tuple[Extent, ...] = ()
    counts: tuple[Count, ...] = ()

    @staticmethod
    def of(symbols: Sequence[Symbol]) -> Fit:
        """The fit by sizes that distinguish what follows from them."""
        return Fit(tuple(symbols), tuple(twin_sizes(symbols)))

    @staticmethod
    def of_distant(symbols: Sequence[Symbol]) -> Fit:
        """As ``of``, by sizes of which parts, too, are others: a quarter of 2,999 is that of 3,000, rounded up."""
        return Fit(tuple(symbols), tuple(twin_sizes(symbols, _DISTANT)))

    @staticmethod
    def of_small(symbols: Sequence[Symbol]) -> Fit:
        """The fit by sizes as small as can be, which tell constants from what depends on sizes."""
        return Fit(tuple(symbols), tuple(small_sizes(symbols)))

    @property
    def twin_sizes(self) -> dict[str, int]:
        """Size of each symbol in the second import, by name."""
        return {symbol.name: size for symbol, size in zip(self.symbols, self.twin, strict=True)}

    def knowing(self, extents: Iterable[Dim]) -> Fit:
        """The fit that takes sizes for these where it can: what an operand has, or a window makes of it."""
        opened = [extent for extent in extents if isinstance(extent, Extent)]
        return replace(self, known=tuple(dict.fromkeys((*self.known, *opened))))

    def counting(self, shapes: Iterable[Sequence[Dim]]) -> Fit:
        """The fit that takes numbers for those of adjacent dimensions of these shapes where it can."""
        counts = (count for dims in shapes for count in adjacent_counts(dims) if not isinstance(count, int))
        return replace(self, counts=tuple(dict.fromkeys((*self.counts, *counts))))

    def count(self, one: int, other: int) -> Count:
        """The number of elements that is ``one`` in the first import and ``other`` in the second.

        No offset is guessed, as no third import tells whether it is one.

        Raises:
            RejectionError: if no formula fits, or several do, which is a ``SeveralFitError``.
        """
        counted = [count for count in self.counts if self._values(count) == (one, other)]
        if one != other and counted:
            return self._only(counted, one, other)
        return self._first(one, other, (self._known, self._multiples))

    def dim(self, one: int, other: int) -> Dim:
        """The size that is ``one`` in the first import and ``other`` in the second.

        Raises:
            RejectionError: if no formula fits, or several do, which is a ``SeveralFitError``, or it may be below zero.
        """
        likely = (self._known, self._multiples, self._multiples_of_known, self._together)
        # A token that is joined to a sequence has one more, and a multiple of a batch may be equal with an offset.
        guessed = (self._whole_shifted, self._whole_sums, self._shifted, self._sums)
        return _not_negative(self._first(one, other, (*likely, *guessed)))

    def number(self, one: int, other: int) -> Dim:
        """The integer in code that is ``one`` in the first import and ``other`` in the second: a size, or a last
        index, of a product, too.

        Raises:
            RejectionError: if no formula fits, or several do, which is a ``SeveralFitError``.
        """
        likely = (self._known, self._multiples, self._multiples_of_known, self._lasts, self._together)
        return self._first(one, other, (*likely, self._shifted, self._sums))

    def amount(self, one: int, other: int) -> Count:
        """As ``number``, or how many elements adjacent dimensions have, as what a mean divides by.

        Rounded sizes are factors of such a number, and of no other.

        Raises:
            RejectionError: if no formula fits, or several do, which is a ``SeveralFitError``.
        """
        if one != other:
            pairs = (count_of(pair) for pair in itertools.combinations_with_replacement(self.known, 2))
            counted = {count for count in (*self.counts, *pairs) if self._values(count) == (one, other)}
            if len(counted) == 1:
                return counted.pop()
        return self.number(one, other)

    def _first(self, one: int, other: int, sources: Iterable[Callable[[int, int], Iterator[Extent]]]) -> Dim:
        """The size by the first of the sources that have one."""
        if one == other:
            return one
        for candidates in sources:
            if fitting := tuple(dict.fromkeys(candidates(one, other))):
                break
        else:
            raise RejectionError(f"a size that is {one} or {other} is no product of them")
        return self._only(fitting, one, other)

    @staticmethod
    def _only(fitting: Sequence[_Formula], one: int, other: int) -> _Formula:
        """The only formula."""
        if len(fitting) > 1:
            raise SeveralFitError(f"a size that is {one} or {other} may be {' or '.join(map(str, fitting))}")
        return fitting[0]

    def _known(self, one: int, other: int) -> Iterator[Extent]:
        return (extent for extent in self.known if self._values(extent) == (one, other))

    def _multiples(self, one: int, other: int) -> Iterator[Extent]:
        """The products of sizes, with a factor."""
        for part in self._products:
            most, twin = self._values(part)
            factor, rest = divmod(one, most)
            if factor and not rest and factor * twin == other:
                yield Extent.of(part.symbols, part.factor * factor, 0, part.divisor)

    def _multiples_of_known(self, one: int, other: int) -> Iterator[Extent]:
        """The multiples of known sizes with an offset, as of rows behind a token that are joined with themselves."""
        shifted = (extent for extent in self.known if extent.offset and extent.divisor == 1)
        for part in filter(self._is_told, shifted):
            most, twin = self._values(part)
            factor, rest = divmod(one, most) if most else (0, 1)
            if factor > 1 and not rest and factor * twin == other:
                yield Extent.of(part.symbols, part.factor * factor, part.offset * factor)

    def _lasts(self, one: int, other: int) -> Iterator[Extent]:
        """One less than a known size, or else than a product."""
        for source in (self._known, self._multiples, self._together):
            if sizes := tuple(source(one + 1, other + 1)):
                return (size.plus(-1) for size in sizes)
        return iter(())

    def _together(self, one: int, other: int) -> Iterator[Extent]:
        """The sums of known sizes and symbols, as of a past and what is joined to it: of two, else of three."""
        for count in range(2, _MOST_TERMS + 1):
            sums = tuple(extent for extent in self._sums_of(count) if self._values(extent) == (one, other))
            if sums:
                return iter(sums)
        return iter(())

    def _sums_of(self, count: int) -> Iterator[Extent]:
        return map(sum_of, itertools.combinations(self._terms, count))

    @cached_property
    def _terms(self) -> tuple[Extent, ...]:
        """What sums may be those of; nothing if that is too much to tell them apart."""
        known = (extent for extent in self.known if extent.divisor == 1)
        extents = dict.fromkeys((*known, *map(Extent.of_symbol, self.symbols)))
        terms = tuple(filter(self._is_told, extents))
        return terms if len(terms) <= _MOST_SUMMED else ()

    def _sums(self, one: int, other: int) -> Iterator[Extent]:
        """The symbol or known size, or a multiple, with a small offset, as of a token before a sequence."""
        known = (extent for extent in self.known if len(extent.symbols) == 1)
        for part in filter(self._is_told, (*map(Extent.of_symbol, self.symbols), *known)):
            most, twin = self._values(part)
            factor, rest = divmod(one - other, most - twin) if most != twin else (0, 1)
            offset = one - factor * most
            if rest or factor < 1 or not 0 < abs(offset) <= _MOST_OFFSET:
                continue
            if factor == 1:
                yield part.plus(offset)
            elif part.is_product:
                yield Extent.of(part.symbols, part.factor * factor, 0, part.divisor).plus(offset)

    def _shifted(self, one: int, other: int) -> Iterator[Extent]:
        """As ``_sums``, those of no multiple."""
        return (extent for extent in self._sums(one, other) if extent.factor == 1)

    def _whole_shifted(self, one: int, other: int) -> Iterator[Extent]:
        """As ``_shifted``, those that are at no size below zero."""
        return (extent for extent in self._shifted(one, other) if extent.least >= 0)

    def _whole_sums(self, one: int, other: int) -> Iterator[Extent]:
        """As ``_sums``, those that are at no size below zero."""
        return (extent for extent in self._sums(one, other) if extent.least >= 0)

    @cached_property
    def _products(self) -> tuple[Extent, ...]:
        """The products of symbols, and of known sizes, that sizes may be multiples of."""
        known = [extent for extent in self.known if extent.is_product and len(extent.symbols) == 1]
        pairs = itertools.combinations_with_replacement(known, _MOST_FACTORS)
        extents = (*_products(self.symbols), *known, *(one.times(other) for one, other in pairs))
        return tuple(filter(self._is_told, extents))

    def _is_told(self, part: Extent) -> bool:
        """Whether sizes may follow from a formula: not if sizes that are rounded otherwise are known of its symbols.

        A multiple of those may be equal in all imports, and other elsewhere.
        """
        alike = (extent for extent in self.known if {*symbols_in([extent])} & {*symbols_in([part])})
        return all(extent.rounding == part.rounding for extent in alike)

    def _values(self, count: Count) -> tuple[int, int]:
        """What a size is in the two imports."""
        return (count, count) if isinstance(count, int) else (count.most, count.at(self.twin_sizes))


def _not_negative(dim: Dim) -> Dim:
    """The same size, as that of a tensor, which code may not make with fewer elements than none.

    Raises:
        RejectionError: if it is below zero where its symbols are the least.
    """
    if isinstance(dim, Extent) and dim.least < 0:
        where = " and ".join(f"{symbol.name} is {symbol.least}" for symbol in dim.symbols)
        raise RejectionError(f"it has a size of {dim}, which is {dim.least} where {where}")
    return dim


def twin_sizes(symbols: Sequence[Symbol], distance: int = 1) -> list[int]:
    """Sizes for a second import: primes times what each symbol is a multiple of, all of them different, and differently
    far from the largest sizes.

    They are just below the largest size, as a model may have tables of that length, and above it where that leaves less
    than three, as code for sizes of one leaves dimensions out. Those of large ranges are at least so many multiples
    below.
    """
    taken = {symbol.most for symbol in symbols}
    sizes: list[int] = []
    for symbol in symbols:
        count = symbol.most // symbol.multiple
        below = range(count - (distance if count > 2 * distance else 1), 2, -1)
        above = itertools.count(max(3, symbol.most // symbol.multiple + 1))
        known = [*zip(symbols, sizes, strict=False)]
        distances = {symbol.most - size for symbol, size in known}
        # As what is left of an image's side where its symbol is a multiple.
        steps = {(symbol.most - size) // symbol.multiple for symbol, size in known}
        alike = {symbol.most - distance for distance in distances} | {
            symbol.most - step * symbol.multiple for step in steps
        }
        sizes.append(_first_prime(symbol, itertools.chain(below, above), taken | alike))
        taken.add(sizes[-1])
    return sizes


def small_sizes(symbols: Sequence[Symbol]) -> list[int]:
    """Sizes for a third import: the smallest primes from three on, times what each symbol is a multiple of, such that
    one product of symbols fits what follows from them.
    """
    taken: set[int] = set()
    sizes: list[int] = []
    for index, symbol in enumerate(symbols):
        known = symbols[: index + 1]
        for number in itertools.count(max(3, symbol.least // symbol.multiple)):
            size = _first_prime(symbol, itertools.count(number), taken)
            if _tells_products({one.name: small for one, small in zip(known, [*sizes, size], strict=True)}, known):
                break
        sizes.append(size)
        taken.add(size)
    return sizes


def _first_prime(symbol: Symbol, numbers: Iterable[int], taken: Collection[int]) -> int:
    sizes = (number * symbol.multiple for number in numbers if _is_prime(number))
    return next(size for size in sizes if size not in taken)


def _tells_products(sizes: Mapping[str, int], symbols: Sequence[Symbol]) -> bool:
    """Whether no two products of symbols are in the same ratio to those of the largest sizes."""
    ratios = [Fraction(product.at(sizes), product.most) for product in _products(symbols)]
    return len(set(ratios)) == len(ratios)


def _products(symbols: Sequence[Symbol]) -> tuple[Extent, ...]:
    """Products of up to two symbols, and of three different ones, as of a batch of images of any height and width."""
    ordered = sorted(symbols)
    few = [
        combination
        for count in range(1, _MOST_FACTORS + 1)
        for combination in itertools.combinations_with_replacement(ordered, count)
    ]
    return tuple(map(Extent, (*few, *itertools.combinations(ordered, _MOST_FACTORS + 1))))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % index for index in range(2, math.isqrt(number) + 1))

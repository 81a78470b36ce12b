"""Sizes that are known only when a network runs: bounded symbols, and the extents that follow from them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, order=True)
class Symbol:
    """A size that callers choose, or the sum of several.

    Attributes:
        name: that of the dimension in the model, or of the input that has it.
        least: smallest size, at least 1.
        most: largest size.
        multiple: what every size is a multiple of.
        terms: what a sum is that of, as of a past and what is joined to it; empty for what callers choose.
    """

    name: str
    least: int
    most: int
    multiple: int = 1
    terms: tuple[Extent, ...] = ()

    def __str__(self) -> str:
        """The name with the range, as messages show it."""
        steps = "" if self.multiple == 1 else f" by {self.multiple}"
        return f"{self.name}={self.least}..{self.most}{steps}"

    @property
    def chosen(self) -> tuple[Symbol, ...]:
        """The symbols that callers choose: this one, or those of the sum."""
        return symbols_in(self.terms) if self.terms else (self,)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size for sizes that callers choose, by their names."""
        return sum(term.at(sizes) for term in self.terms) if self.terms else sizes[self.name]

    def allows(self, size: int) -> bool:
        """Whether a caller may choose this size."""
        return self.least <= size <= self.most and size % self.multiple == 0

    @property
    def steps(self) -> range:
        """The sizes that a caller may choose."""
        first = -(-self.least // self.multiple)
        return range(first * self.multiple, self.most + 1, self.multiple)

    def at_part(self, part: float) -> int:
        """A size that a caller may choose, near a part of the range's octaves."""
        size = self.least * math.pow(self.most / self.least, part)
        return min(max(round(size / self.multiple) * self.multiple, self.least), self.most)

    def odd_near(self, size: float) -> int:
        """A size near another one that a caller may choose, an odd number of multiples if there is one near."""
        count = max(1, math.floor(size / self.multiple)) | 1
        return min(max(count * self.multiple, self.least), self.most)


@dataclass(frozen=True, order=True)
class Extent:
    """A size that follows from symbols: ``factor`` times their product, plus ``offset``, divided and rounded down."""

    symbols: tuple[Symbol, ...]
    factor: int = 1
    offset: int = 0
    divisor: int = 1

    @staticmethod
    def of(symbols: Sequence[Symbol], factor: int, offset: int = 0, divisor: int = 1) -> Extent:
        """The formula in lowest terms: two that are equal for all sizes that symbols allow are the same."""
        ordered = tuple(sorted(symbols))
        step = factor * math.prod(symbol.multiple for symbol in ordered)
        offset -= offset % math.gcd(step, divisor)
        common = math.gcd(factor, offset, divisor)
        return Extent(ordered, factor // common, offset // common, divisor // common)

    def __str__(self) -> str:
        """The formula by the symbols' names."""
        names = [*([str(self.factor)] if self.factor != 1 else []), *(symbol.name for symbol in self.symbols)]
        total = " * ".join(names) + (f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else "")
        return total if self.divisor == 1 else f"({total}) / {self.divisor}"

    @property
    def most(self) -> int:
        """The size where all symbols are the largest."""
        return self._of(symbol.most for symbol in self.symbols)

    @property
    def least(self) -> int:
        """The size where all symbols are the smallest."""
        return self._of(symbol.least for symbol in self.symbols)

    @property
    def symbol(self) -> Symbol | None:
        """The one symbol that this size is, None for any other formula."""
        return None if self.offset else self.shifted

    @property
    def shifted(self) -> Symbol | None:
        """The one symbol of callers that this size is but for the offset, None for any other formula."""
        is_one = len(self.symbols) == 1 and not self.symbols[0].terms and (self.factor, self.divisor) == (1, 1)
        return self.symbols[0] if is_one else None

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size for sizes of the symbols, by their names."""
        return self._of(symbol.at(sizes) for symbol in self.symbols)

    def _of(self, sizes: Iterable[int]) -> int:
        return (self.factor * math.prod(sizes) + self.offset) // self.divisor

    @property
    def is_product(self) -> bool:
        """Whether it is a part or a multiple of the symbols' product, without a rest."""
        return not self.offset and self.rounding is None

    @property
    def rounding(self) -> Fraction | None:
        """What the symbols' product is multiplied by before it is rounded; None if nothing is."""
        step = self.factor * math.prod(symbol.multiple for symbol in self.symbols)
        return Fraction(self.factor, self.divisor) if step % self.divisor else None

    @property
    def summed(self) -> tuple[Symbol, ...]:
        """The symbols of callers that this size is the sum of, but for the offset; none for any other formula."""
        terms = self.symbols[0].terms if (len(self.symbols), self.factor, self.divisor) == (1, 1, 1) else ()
        symbols = [term.symbol for term in terms]
        return tuple(symbol for symbol in symbols if symbol is not None) if all(symbols) else ()

    @staticmethod
    def of_symbol(symbol: Symbol) -> Extent:
        """The size that callers choose."""
        return Extent((symbol,))

    def times(self, other: Extent) -> Extent:
        """The product of two products."""
        return Extent.of((*self.symbols, *other.symbols), self.factor * other.factor, 0, self.divisor * other.divisor)

    def plus(self, number: int) -> Extent:
        """So much more."""
        return Extent.of(self.symbols, self.factor, self.offset + number * self.divisor, self.divisor)

    def over(self, divisor: int) -> Extent:
        """The quotient, rounded down."""
        return Extent.of(self.symbols, self.factor, self.offset, self.divisor * divisor)


Dim: TypeAlias = int | Extent
"""The size of a dimension: known when code is made, or only when it runs."""


def sum_of(extents: Iterable[Extent]) -> Extent:
    """The sum of sizes that are not rounded. Sums that are equal because of their terms are the same."""
    offset, factors = 0, dict[tuple[tuple[Symbol, ...], int], int]()
    for extent in extents:
        whole = extent.divisor == 1
        offset += extent.offset if whole else 0
        is_sum = whole and extent.factor == 1 and len(extent.symbols) == 1 and bool(extent.symbols[0].terms)
        for term in extent.symbols[0].terms if is_sum else (extent,):
            if not whole and term.offset:
                raise ValueError(f"{term} is no term of a sum, as it is divided with an offset")
            key = term.symbols, term.divisor
            factors[key] = factors.get(key, 0) + term.factor
    terms = sorted(Extent.of(symbols, factor, 0, divisor) for (symbols, divisor), factor in factors.items())
    if len(terms) == 1:
        return terms[0].plus(offset)
    multiple = math.gcd(*(term.at({symbol.name: symbol.multiple for symbol in term.symbols}) for term in terms))
    least, most = sum(term.least for term in terms), sum(term.most for term in terms)
    return Extent.of((Symbol(" + ".join(map(str, terms)), least, most, multiple, tuple(terms)),), 1, offset)


def most_of(count: Count) -> int:
    """A number, or the largest that it may be."""
    return count if isinstance(count, int) else count.most


def at_most(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Each size, or the largest that it may be."""
    return tuple(map(most_of, dims))


def symbols_in(dims: Iterable[Dim]) -> tuple[Symbol, ...]:
    """The symbols of callers that sizes follow from, each once, in the order of their first use."""
    symbols = (symbol for dim in dims if isinstance(dim, Extent) for symbol in dim.symbols)
    return tuple(dict.fromkeys(chosen for symbol in symbols for chosen in symbol.chosen))


@dataclass(frozen=True)
class Product:
    """A number of elements: ``factor`` times sizes, of which not all are multiples of symbols."""

    parts: tuple[Extent, ...]
    factor: int

    def __str__(self) -> str:
        """The formula by the symbols' names."""
        return " * ".join([str(self.factor), *(f"({part})" for part in self.parts)])

    @property
    def most(self) -> int:
        """The number where all symbols are the largest."""
        return self.factor * math.prod(part.most for part in self.parts)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number for sizes of the symbols, by their names."""
        return self.factor * math.prod(part.at(sizes) for part in self.parts)


Count: TypeAlias = Dim | Product
"""A number of elements, as of adjacent dimensions: known when code is made, or only when it runs."""


def count_of(dims: Iterable[Dim]) -> Count:
    """How many elements dimensions have together."""
    listed = [*dims]
    factor = math.prod(factor_known for factor_known in listed if isinstance(factor_known, int))
    opened = sorted(extent for extent in listed if isinstance(extent, Extent))
    if (len(opened) < 2 and factor == 1) or not opened:
        return opened[0] if opened else factor
    if not all(extent.is_product for extent in opened):
        return Product(tuple(opened), factor)
    whole = functools.reduce(Extent.times, opened)
    return Extent.of(whole.symbols, whole.factor * factor, 0, whole.divisor)


def adjacent_counts(dims: Sequence[Dim]) -> tuple[Count, ...]:
    """How many elements each run of adjacent dimensions has."""
    runs = ((first, end) for first in range(len(dims)) for end in range(first + 1, len(dims) + 1))
    return tuple(dict.fromkeys(count_of(dims[first:end]) for first, end in runs))

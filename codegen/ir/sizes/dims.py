"""Sizes that are known only when a network runs: bounded symbols, and the extents that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, order=True)
class Symbol:
    """A size that callers choose.

    Attributes:
        name: that of the dimension in the model, or of the input that has it.
        least: smallest size, at least 1.
        most: largest size.
        multiple: what every size is a multiple of.
    """

    name: str
    least: int
    most: int
    multiple: int = 1

    def __str__(self) -> str:
        """The name with the range, as messages show it."""
        steps = "" if self.multiple == 1 else f" by {self.multiple}"
        return f"{self.name}={self.least}..{self.most}{steps}"

    def allows(self, size: int) -> bool:
        """Whether a caller may choose this size."""
        return self.least <= size <= self.most and size % self.multiple == 0


@dataclass(frozen=True, order=True)
class Extent:
    """A size that follows from symbols: ``factor`` times their product, plus ``offset``."""

    symbols: tuple[Symbol, ...]
    factor: int = 1
    offset: int = 0

    def __str__(self) -> str:
        """The formula by the symbols' names."""
        names = [*([str(self.factor)] if self.factor != 1 else []), *(each.name for each in self.symbols)]
        return " * ".join(names) + (f" + {self.offset}" if self.offset else "")

    @property
    def most(self) -> int:
        """The size where all symbols are the largest."""
        return self.at({each.name: each.most for each in self.symbols})

    @property
    def symbol(self) -> Symbol | None:
        """The one symbol that this size is, None for any other formula."""
        is_plain = len(self.symbols) == 1 and (self.factor, self.offset) == (1, 0)
        return self.symbols[0] if is_plain else None

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size for sizes of the symbols, by their names."""
        return self.factor * math.prod(sizes[each.name] for each in self.symbols) + self.offset


Dim: TypeAlias = int | Extent
"""The size of a dimension: known when code is made, or only when it runs."""


def at_most(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Each size, or the largest that it may be."""
    return tuple(each if isinstance(each, int) else each.most for each in dims)


def symbols_in(dims: Iterable[Dim]) -> tuple[Symbol, ...]:
    """The symbols that sizes follow from, each once, in the order of their first use."""
    return tuple(dict.fromkeys(symbol for each in dims if isinstance(each, Extent) for symbol in each.symbols))


def product(dims: Sequence[Dim]) -> Dim:
    """The number of elements of these dimensions.

    Raises:
        ValueError: if it is no multiple of a product of symbols.
    """
    factor, symbols = 1, list[Symbol]()
    for each in dims:
        if isinstance(each, int):
            factor *= each
            continue
        if each.offset and len(dims) > 1:
            raise ValueError(f"{' x '.join(map(str, dims))} elements are no product of sizes")
        factor, symbols = factor * each.factor, [*symbols, *each.symbols]
    offset = sum(each.offset for each in dims if isinstance(each, Extent))
    return Extent(tuple(sorted(symbols)), factor, offset) if symbols else factor

"""The innermost loop: an outer product per step, added to a tile of accumulators (Goto and van de Geijn, 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import FMA, Multiplier
from sartor.codegen.mlir.iree_compiler import ir

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Lhs:
    """The LHS, whose elements are broadcast; consecutive steps are adjacent in memory.

    Attributes:
        memory: buffer.
        start: offset of the first step.
        rows: distance in elements of each row of the tile from ``start``.
    """

    memory: ir.Value
    start: Index
    rows: Mapping[int, int]


@dataclass(frozen=True)
class Prefetch:
    """A part of the RHS that is fetched into the cache before it is read.

    Attributes:
        start: offset of what the first step fetches.
        step: elements that each step fetches.
        is_soon: whether this is read soon, and once.
    """

    start: Index
    step: int
    is_soon: bool = False


@dataclass(frozen=True)
class Rhs:
    """The RHS, which is read in vectors.

    Attributes:
        memory: buffer.
        start: offset of the first step.
        step: distance in elements from step to step.
        vectors: distance of each vector of the tile from ``start``, and how many elements of it to read.
        prefetch: what the steps fetch for later; None for nothing.
    """

    memory: ir.Value
    start: Index
    step: int
    vectors: Sequence[tuple[int, int]]
    prefetch: Prefetch | None = None


@runtime_checkable
class Chained(Protocol):
    """A multiplier that adds a few products in a narrower type, before they are added to the accumulators."""

    @property
    def chain(self) -> int:
        """The most steps whose products are added so."""

    def begin(self, asm: Assembler) -> ir.Value:
        """The sum of no products."""

    def end(self, asm: Assembler, total: ir.Value, chained: ir.Value) -> ir.Value:
        """An accumulator with such a sum added."""


def multiply_add(
    asm: Assembler,
    lhs: Lhs,
    rhs: Rhs,
    count: int,
    unroll: int,
    totals: list[ir.Value],
    multiplier: Multiplier = FMA,
) -> list[ir.Value]:
    """Add ``count`` outer products to a tile of accumulators.

    Args:
        asm: emits the code.
        lhs: what is broadcast.
        rhs: what is read in vectors.
        count: number of steps.
        unroll: most steps to write out; a divisor of ``count`` is chosen.
        totals: accumulators ``[rows, vectors]``, as ``open_tile`` returns them.
        multiplier: how a step multiplies.

    Returns:
        The new accumulators.
    """
    if not isinstance(multiplier, Chained):
        return _steps(asm, lhs, rhs, count, unroll, totals, multiplier)
    length, chained = _divisor(count, multiplier.chain), multiplier

    def chain(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
        image = replace(lhs, start=asm.add(lhs.start, asm.mul(index, multiplier.group)))
        filters = replace(rhs, start=asm.add(rhs.start, asm.mul(index, rhs.step)))
        sums = [chained.begin(asm)] * len(carried)
        sums = _steps(asm, image, filters, length, unroll, sums, multiplier)
        return [chained.end(asm, *pair) for pair in zip(carried, sums, strict=True)]

    return asm.loop(0, count, length, totals, chain)


def _divisor(count: int, most: int) -> int:
    """The largest divisor of ``count`` that is not above ``most``."""
    return next(index for index in range(min(most, count), 0, -1) if count % index == 0)


def _steps(
    asm: Assembler, lhs: Lhs, rhs: Rhs, count: int, unroll: int, totals: list[ir.Value], multiplier: Multiplier
) -> list[ir.Value]:
    """Add ``count`` outer products, all in the accumulators."""
    written = _divisor(count, unroll)
    together = multiplier.together(asm.lanes, written) if asm.indexes else 1

    def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
        _fetch(asm, rhs, index, written, multiplier)
        for step in range(0, written, together):
            start = asm.add(lhs.start, asm.mul(index, multiplier.group), step * multiplier.group)
            begin = asm.add(rhs.start, asm.mul(index, rhs.step), step * rhs.step)
            carried = _outer_products(
                asm, multiplier, replace(lhs, start=start), replace(rhs, start=begin), carried, together
            )
        return carried

    return asm.loop(0, count, written, totals, every)


def _fetch(asm: Assembler, rhs: Rhs, index: Index, steps: int, multiplier: Multiplier) -> None:
    """Emit the prefetches of ``steps`` steps, one for as many bytes as a vector has."""
    if rhs.prefetch is None:
        return
    start = asm.add(rhs.prefetch.start, asm.mul(index, rhs.prefetch.step))
    fetch = asm.prefetch_stream if rhs.prefetch.is_soon else asm.prefetch
    for distance in range(0, steps * rhs.prefetch.step, asm.lanes * _FLOAT_BYTES // multiplier.bytes):
        fetch(rhs.memory, asm.add(start, distance))


def _outer_products(
    asm: Assembler, multiplier: Multiplier, lhs: Lhs, rhs: Rhs, totals: list[ir.Value], steps: int
) -> list[ir.Value]:
    """Add the outer products of adjacent steps, whose numbers of the LHS are loaded together."""
    totals, pixels = list(totals), multiplier.pixels
    starts = dict.fromkeys(pixel - pixel % pixels for pixel in lhs.rows)
    factors: dict[int, Sequence[ir.Value]] = {}
    for step in range(steps):
        begin = asm.add(rhs.start, step * rhs.step)
        row = [multiplier.load(asm, rhs.memory, asm.add(begin, distance), count) for distance, count in rhs.vectors]
        for first in starts:
            if not step:
                offsets = _offsets(asm, lhs, range(first, first + pixels))
                factors[first] = multiplier.factors(asm, lhs.memory, offsets, steps)
            for position, factor in enumerate(row):
                indices = [pixel * len(row) + position for pixel in range(first, first + pixels)]
                added = multiplier.add(asm, factors[first][step], factor, [totals[index] for index in indices])
                for index, total in zip(indices, added, strict=True):
                    totals[index] = total
    return totals


def _offsets(asm: Assembler, lhs: Lhs, pixels: range) -> list[Index | None]:
    """Offsets of pixels that are multiplied at once; None for those that are left out."""
    return [asm.add(lhs.start, lhs.rows[pixel]) if pixel in lhs.rows else None for pixel in pixels]


def open_tile(multiplier: Multiplier, sums: list[ir.Value], vectors: int) -> list[ir.Value]:
    """Accumulators for sums ``[rows, vectors]``; the last row is repeated to fill a group that is multiplied at
    once."""
    missing = -(len(sums) // vectors) % multiplier.pixels
    return _by_pixels(multiplier, [*sums, *sums[len(sums) - vectors :] * missing], vectors, multiplier.open)


def close_tile(multiplier: Multiplier, accumulators: list[ir.Value], vectors: int, count: int) -> list[ir.Value]:
    """The first ``count`` sums ``[rows, vectors]`` from accumulators."""
    return _by_pixels(multiplier, accumulators, vectors, multiplier.close)[:count]


def _by_pixels(
    multiplier: Multiplier,
    values: list[ir.Value],
    vectors: int,
    change: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """Apply ``change`` to values ``[rows, vectors]``: for each vector, to all rows that are multiplied at once."""
    step = multiplier.pixels * vectors
    by_pixels = list(values)
    for start in range(0, len(values), step):
        for vector in range(start, start + vectors):
            by_pixels[vector : start + step : vectors] = change(values[vector : start + step : vectors])
    return by_pixels

"""The innermost loop: an outer product per step, added to a tile of accumulators (Goto and van de Geijn, 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import SINGLES, Factors
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Lhs:
    """Elements that are broadcast: adjacent steps are adjacent in memory.

    Attributes:
        memory: buffer.
        start: offset of the first step.
        rows: row of the tile to its distance from ``start``.
    """

    memory: ir.Value
    start: Index
    rows: Mapping[int, int]


@dataclass(frozen=True)
class Prefetch:
    """A part of what will be read later.

    Attributes:
        start: offset of what the first step fetches.
        step: elements per step.
    """

    start: Index
    step: int


@dataclass(frozen=True)
class Rhs:
    """Vectors that are multiplied.

    Attributes:
        memory: buffer.
        start: offset of the first step.
        step: distance of steps.
        vectors: distance of each vector of the tile from ``start``, and how many elements of it to read.
        ahead: what will be read later, and is fetched into the cache meanwhile.
    """

    memory: ir.Value
    start: Index
    step: int
    vectors: Sequence[tuple[int, int]]
    ahead: Prefetch | None = None


def multiply_add(
    asm: Assembler,
    lhs: Lhs,
    rhs: Rhs,
    count: int,
    unroll: int,
    totals: list[ir.Value],
    factors: Factors = SINGLES,
) -> list[ir.Value]:
    """Add ``count`` outer products of ``factors`` to accumulators ``[rows, vectors]``, as ``open_tile`` gives them;
    divisors of ``count`` up to ``unroll`` steps are written out."""
    written = next(each for each in range(min(unroll, count), 0, -1) if count % each == 0)

    def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
        _fetch(asm, rhs, index, written, factors)
        for step in range(written):
            start = asm.add(lhs.start, asm.mul(index, factors.group), step * factors.group)
            begin = asm.add(rhs.start, asm.mul(index, rhs.step), step * rhs.step)
            carried = _outer_product(asm, factors, lhs, start, rhs, begin, carried)
        return carried

    return asm.loop(0, count, written, totals, every)


def _fetch(asm: Assembler, rhs: Rhs, index: Index, steps: int, factors: Factors) -> None:
    """Fetch what so many steps are to fetch, a vector at a time."""
    if rhs.ahead is None:
        return
    start = asm.add(rhs.ahead.start, asm.mul(index, rhs.ahead.step))
    for distance in range(0, steps * rhs.ahead.step, asm.lanes * factors.group):
        asm.prefetch(rhs.memory, asm.add(start, distance))


def _outer_product(
    asm: Assembler,
    factors: Factors,
    lhs: Lhs,
    start: Index,
    rhs: Rhs,
    begin: Index,
    totals: list[ir.Value],
) -> list[ir.Value]:
    row = [factors.load(asm, rhs.memory, asm.add(begin, distance), count) for distance, count in rhs.vectors]
    totals = list(totals)
    for first in dict.fromkeys(pixel - pixel % factors.pixels for pixel in lhs.rows):
        pixels = range(first, first + factors.pixels)
        offsets = [asm.add(start, lhs.rows[each]) if each in lhs.rows else None for each in pixels]
        factor = factors.broadcast(asm, lhs.memory, offsets)
        for position, each in enumerate(row):
            spots = [pixel * len(row) + position for pixel in pixels]
            found = factors.add(asm, factor, each, [totals[spot] for spot in spots])
            for spot, total in zip(spots, found, strict=True):
                totals[spot] = total
    return totals


def open_tile(factors: Factors, sums: list[ir.Value], vectors: int) -> list[ir.Value]:
    """Accumulators for sums ``[rows, vectors]``, of which there are more where rows are missing beside the last."""
    missing = -(len(sums) // vectors) % factors.pixels
    return _by_pixels(factors, [*sums, *sums[len(sums) - vectors :] * missing], vectors, factors.open)


def close_tile(factors: Factors, accumulators: list[ir.Value], vectors: int, count: int) -> list[ir.Value]:
    """The first ``count`` of the sums ``[rows, vectors]`` from accumulators."""
    return _by_pixels(factors, accumulators, vectors, factors.close)[:count]


def _by_pixels(
    factors: Factors, values: list[ir.Value], vectors: int, change: Callable[[Sequence[ir.Value]], Sequence[ir.Value]]
) -> list[ir.Value]:
    """Values ``[rows, vectors]`` changed for rows that are multiplied at once, vector by vector."""
    step = factors.pixels * vectors
    found = list(values)
    for start in range(0, len(values), step):
        for vector in range(start, start + vectors):
            found[vector : start + step : vectors] = change(values[vector : start + step : vectors])
    return found

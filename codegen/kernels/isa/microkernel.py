"""The innermost loop: an outer product per step, added to a tile of accumulators (Goto and van de Geijn, 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import FMA, Multiplier
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
        prefetch: what will be read later, and is fetched into the cache meanwhile.
    """

    memory: ir.Value
    start: Index
    step: int
    vectors: Sequence[tuple[int, int]]
    prefetch: Prefetch | None = None


def multiply_add(
    asm: Assembler,
    lhs: Lhs,
    rhs: Rhs,
    count: int,
    unroll: int,
    totals: list[ir.Value],
    multiplier: Multiplier = FMA,
) -> list[ir.Value]:
    """Add ``count`` outer products of ``factors`` to accumulators ``[rows, vectors]``, as ``open_tile`` gives them;
    divisors of ``count`` up to ``unroll`` steps are written out."""
    written = next(each for each in range(min(unroll, count), 0, -1) if count % each == 0)

    def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
        _fetch(asm, rhs, index, written, multiplier)
        for step in range(written):
            start = asm.add(lhs.start, asm.mul(index, multiplier.group), step * multiplier.group)
            begin = asm.add(rhs.start, asm.mul(index, rhs.step), step * rhs.step)
            carried = _outer_product(asm, multiplier, lhs, start, rhs, begin, carried)
        return carried

    return asm.loop(0, count, written, totals, every)


def _fetch(asm: Assembler, rhs: Rhs, index: Index, steps: int, multiplier: Multiplier) -> None:
    """Fetch what so many steps are to fetch, a vector at a time."""
    if rhs.prefetch is None:
        return
    start = asm.add(rhs.prefetch.start, asm.mul(index, rhs.prefetch.step))
    for distance in range(0, steps * rhs.prefetch.step, asm.lanes * multiplier.group):
        asm.prefetch(rhs.memory, asm.add(start, distance))


def _outer_product(
    asm: Assembler,
    multiplier: Multiplier,
    lhs: Lhs,
    start: Index,
    rhs: Rhs,
    begin: Index,
    totals: list[ir.Value],
) -> list[ir.Value]:
    row = [multiplier.load(asm, rhs.memory, asm.add(begin, distance), count) for distance, count in rhs.vectors]
    totals = list(totals)
    for first in dict.fromkeys(pixel - pixel % multiplier.pixels for pixel in lhs.rows):
        pixels = range(first, first + multiplier.pixels)
        offsets = [asm.add(start, lhs.rows[each]) if each in lhs.rows else None for each in pixels]
        factor = multiplier.broadcast(asm, lhs.memory, offsets)
        for position, each in enumerate(row):
            indices = [pixel * len(row) + position for pixel in pixels]
            found = multiplier.add(asm, factor, each, [totals[index] for index in indices])
            for index, total in zip(indices, found, strict=True):
                totals[index] = total
    return totals


def open_tile(multiplier: Multiplier, sums: list[ir.Value], vectors: int) -> list[ir.Value]:
    """Accumulators for sums ``[rows, vectors]``, of which there are more where rows are missing beside the last."""
    missing = -(len(sums) // vectors) % multiplier.pixels
    return _by_pixels(multiplier, [*sums, *sums[len(sums) - vectors :] * missing], vectors, multiplier.open)


def close_tile(multiplier: Multiplier, accumulators: list[ir.Value], vectors: int, count: int) -> list[ir.Value]:
    """The first ``count`` of the sums ``[rows, vectors]`` from accumulators."""
    return _by_pixels(multiplier, accumulators, vectors, multiplier.close)[:count]


def _by_pixels(
    multiplier: Multiplier,
    values: list[ir.Value],
    vectors: int,
    change: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """Values ``[rows, vectors]`` changed for rows that are multiplied at once, vector by vector."""
    step = multiplier.pixels * vectors
    found = list(values)
    for start in range(0, len(values), step):
        for vector in range(start, start + vectors):
            found[vector : start + step : vectors] = change(values[vector : start + step : vectors])
    return found

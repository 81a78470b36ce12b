"""The innermost loop: an outer product per step, added to a tile of accumulators (Goto and van de Geijn, 2008)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import SINGLES, Factors
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Left:
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
class Ahead:
    """A part of what will be read later.

    Attributes:
        start: offset of what the first step fetches.
        step: elements per step.
    """

    start: Index
    step: int


@dataclass(frozen=True)
class Right:
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
    ahead: Ahead | None = None


def multiply_add(
    asm: Assembler,
    left: Left,
    right: Right,
    count: int,
    unroll: int,
    totals: list[ir.Value],
    factors: Factors = SINGLES,
) -> list[ir.Value]:
    """Add ``count`` outer products of ``factors`` to accumulators ``[rows, vectors]``; divisors of ``count`` up to
    ``unroll`` steps are written out."""
    written = next(each for each in range(min(unroll, count), 0, -1) if count % each == 0)

    def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
        _fetch(asm, right, index, written, factors)
        for step in range(written):
            start = asm.add(left.start, asm.mul(index, factors.group), step * factors.group)
            begin = asm.add(right.start, asm.mul(index, right.step), step * right.step)
            carried = _outer_product(asm, factors, left, start, right, begin, carried)
        return carried

    return asm.loop(0, count, written, totals, every)


def _fetch(asm: Assembler, right: Right, index: Index, steps: int, factors: Factors) -> None:
    """Fetch what so many steps are to fetch, a vector at a time."""
    if right.ahead is None:
        return
    start = asm.add(right.ahead.start, asm.mul(index, right.ahead.step))
    for distance in range(0, steps * right.ahead.step, asm.lanes * factors.group):
        asm.prefetch(right.memory, asm.add(start, distance))


def _outer_product(
    asm: Assembler,
    factors: Factors,
    left: Left,
    start: Index,
    right: Right,
    begin: Index,
    totals: list[ir.Value],
) -> list[ir.Value]:
    row = [factors.load(asm, right.memory, asm.add(begin, distance), count) for distance, count in right.vectors]
    totals = list(totals)
    for pixel, distance in left.rows.items():
        factor = factors.broadcast(asm, left.memory, asm.add(start, distance))
        for position, each in enumerate(row):
            spot = pixel * len(row) + position
            totals[spot] = factors.add(asm, factor, each, totals[spot])
    return totals

"""Tilings worth trying: a model of registers, ports and caches selects a few, measurement decides among them.

A step of a register tile loads vectors of filters and pixels, and multiplies each pair. Two loads and two multiply-adds
start in a cycle, and a multiply-add takes four cycles; the unused part of a tile at an edge is lost (Goto and van de
Geijn, 2008, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

_FLOAT_BYTES = 4
_PORTS = 2
_LATENCY = 4
# Cycles to move a line of filters to the first-level cache: from the second, or, if two panels do not fit there, from
# the third.
_LINE_CYCLES = 3
_FAR_LINE_CYCLES = 6
_WIDTHS = (1, 2, 3, 4, 6, 8)
_TRIED = 4
_WASTE = 1.04
# Half of a core's second-level cache, which filters share with the image.
_RESIDENT_BYTES = 1 << 20
# Registers that stay free when a step is written out twice: the next operands are loaded into them.
_SPARE = 6


class Demands(Protocol):
    """What an instruction needs besides sums and filters."""

    @property
    def prepares(self) -> bool:
        """Whether the image's numbers are changed before they are multiplied."""

    @property
    def operands(self) -> int:
        """Registers that it needs besides the usual ones."""


@dataclass(frozen=True)
class Work:
    """The convolution or product that is tiled.

    Attributes:
        rows: rows of the result.
        columns: columns of the result.
        channels: channels of the result.
        depth: steps of a sum, each of which reads four bytes of filters.
        positions_join: whether the pixels of all rows may be rearranged into other rows.
        prepares: whether the image's numbers are changed before they are multiplied.
        operands: registers that an instruction needs besides the usual ones.
    """

    rows: int
    columns: int
    channels: int
    depth: int
    positions_join: bool
    prepares: bool = False
    operands: int = 0

    def by(self, element: Demands | None) -> Work:
        """The work with the demands of an instruction that multiplies groups, if there is one."""
        return self if element is None else replace(self, prepares=element.prepares, operands=element.operands)

    @property
    def filter_bytes(self) -> int:
        """Size of all filters."""
        return self.channels * self.depth * _FLOAT_BYTES


@dataclass(frozen=True)
class Shape:
    """A register tile: its rows, columns and vectors, and the number of steps that are written out."""

    lines: int
    columns: int
    vectors: int
    unroll: int

    def cycles(self, rows: int, columns: int, vectors: int, line_cycles: float, *, prepares: bool = False) -> float:
        """Cycles per step for all tiles of a result, including narrower ones at the edges."""
        total = 0.0
        for lines, one in _parts(rows, self.lines):
            for width, two in _parts(columns, self.columns):
                for wide, three in _parts(vectors, self.vectors):
                    total += self._step(lines * width, wide, line_cycles, prepares) * one * two * three
        return total

    def _step(self, pixels: int, vectors: int, line_cycles: float, prepares: bool) -> float:
        """Cycles of one step of a tile; writing several steps out hides the cost of the loop."""
        operations = pixels * (vectors + prepares)
        busiest = max(operations / _PORTS, (pixels + vectors) / _PORTS, _LATENCY, vectors * line_cycles)
        return busiest + 1 / self.unroll


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """Sizes of tiles over an extent, and how many there are of each."""
    whole, rest = divmod(extent, size)
    return [(size, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)


def tilings(work: Work, machine: Machine) -> list[Tiling]:
    """Tilings, best guess first."""
    vectors = -(-work.channels // machine.lanes)
    rows, columns = (1, work.rows * work.columns) if work.positions_join else (work.rows, work.columns)
    free = replace(machine, accumulators=machine.accumulators - work.operands)
    shapes = register_shapes(rows, columns, vectors, work.depth, free, prepares=work.prepares)
    found = [_split(work, vectors, each, machine.threads, by_rows=_prefers_rows(work)) for each in shapes[:_TRIED]]
    other = _split(work, vectors, shapes[0], machine.threads, by_rows=not _prefers_rows(work))
    return list(dict.fromkeys([*found, other]))


def register_shapes(
    rows: int, columns: int, vectors: int, depth: int, machine: Machine, *, prepares: bool = False
) -> list[Shape]:
    """Register tiles for ``rows x columns`` positions, each a sum of ``depth`` steps, best guess first."""

    def cost(shape: Shape) -> tuple[float, int, int]:
        panel = depth * shape.vectors * machine.vector_bytes
        line = _LINE_CYCLES if 2 * panel <= _RESIDENT_BYTES else _FAR_LINE_CYCLES
        return shape.cycles(rows, columns, vectors, line, prepares=prepares), shape.lines, shape.vectors

    return sorted(set(_shapes(rows, columns, vectors, machine, prepares)), key=cost)


def _shapes(rows: int, columns: int, vectors: int, machine: Machine, prepares: bool) -> Iterator[Shape]:
    """Register tiles that fit the registers."""
    for wide in _WIDTHS:
        if wide > vectors:
            continue
        for spare, unroll in ((0, 1), (_SPARE, 2)):
            pixels = machine.pixels(wide, spare, prepares=prepares)
            if pixels < 1:
                continue
            yield Shape(1, balanced(columns, pixels), wide, unroll)
            lines = pixels // columns
            if lines > 1 and rows > 1:
                yield Shape(balanced(rows, lines), columns, wide, unroll)


def _prefers_rows(work: Work) -> bool:
    """Whether workgroups partition rows. Then each reads all filters, which should stay in the cache."""
    return work.filter_bytes <= _RESIDENT_BYTES


def _split(work: Work, vectors: int, shape: Shape, threads: int, *, by_rows: bool) -> Tiling:
    panels = -(-vectors // shape.vectors)
    sizes = (shape.lines, shape.columns, shape.vectors)
    positions = work.rows * work.columns
    rows = positions // chunk(positions, shape.columns) if work.positions_join else work.rows
    if by_rows and shape.lines == 1:
        return Tiling(*sizes, *many_workgroups_of_two(rows, panels, threads), shape.unroll)
    return Tiling(*sizes, 1, long_workgroups(panels, threads), shape.unroll)


def chunk(positions: int, columns: int) -> int:
    """Pixels of a row when pixels are rearranged: the smallest divisor of all that register tiles cover with little
    waste."""
    for size in range(columns, positions, 1):
        if positions % size == 0 and -(-size // columns) * columns <= size * _WASTE:
            return size
    return positions

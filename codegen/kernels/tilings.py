"""Tilings worth trying: a model of registers, ports and caches leaves a handful, measurement decides among them.

A step of a register tile loads its vectors of filters and its pixels, and multiplies each by each. Two loads and two
multiplications start in a cycle, each of the latter takes four; what does not fill a tile is lost (Goto and van de
Geijn, 2008, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.machine import Machine
from sartor.codegen.register_tiles import balanced

_PORTS = 2
_LATENCY = 4
_WIDTHS = (1, 2, 3, 4, 6, 8)
_TRIED = 4
_GROUPS = 8
_WASTE = 1.04
# Half of a core's second-level cache, which filters share with the image.
_RESIDENT_BYTES = 1 << 20
# Registers that stay free when a step is written out twice: the next operands are loaded into them.
_SPARE = 6


@dataclass(frozen=True)
class Work:
    """What is tiled.

    Attributes:
        rows: of the result.
        columns: of the result.
        channels: of the result.
        filter_bytes: size of all filters.
        positions_join: whether rows may be joined and cut anew.
    """

    rows: int
    columns: int
    channels: int
    filter_bytes: int
    positions_join: bool


def tilings(work: Work, machine: Machine) -> list[Tiling]:
    """Tilings, best guess first."""
    vectors = -(-work.channels // machine.lanes)
    extent = work.rows * work.columns if work.positions_join else work.columns
    shapes = register_shapes(extent, vectors, machine)
    found = [_split(work, vectors, *each) for each in shapes[:_TRIED]]
    other = _split(work, vectors, *shapes[0], by_rows=not _prefers_rows(work))
    return list(dict.fromkeys([*found, other]))


def register_shapes(extent: int, vectors: int, machine: Machine) -> list[tuple[int, int, int]]:
    """Columns, vectors and unrolling of register tiles for ``extent`` positions, best guess first."""
    return sorted(_shapes(extent, vectors, machine), key=lambda each: _cycles(extent, vectors, *each))


def _shapes(extent: int, vectors: int, machine: Machine) -> Iterator[tuple[int, int, int]]:
    """Columns, vectors and unrolling of register tiles that fit the registers."""
    for wide in _WIDTHS:
        if wide > vectors:
            continue
        for accumulators, unroll in ((machine.accumulators, 1), (machine.accumulators - _SPARE, 2)):
            if accumulators >= wide:
                yield balanced(extent, accumulators // wide), wide, unroll


def _cycles(extent: int, vectors: int, columns: int, wide: int, unroll: int) -> float:
    """Cycles per input channel for all positions and channels; unrolled steps hide the loop."""
    step = max(columns * wide / _PORTS, (columns + wide) / _PORTS, _LATENCY) + 1 / unroll
    tiles = -(-extent // columns) * -(-vectors // wide)
    return step * tiles


def _prefers_rows(work: Work) -> bool:
    """Whether workgroups share out rows: each then reads all filters, which should stay in the cache."""
    return work.filter_bytes <= _RESIDENT_BYTES


def _split(work: Work, vectors: int, columns: int, wide: int, unroll: int, *, by_rows: bool | None = None) -> Tiling:
    panels = -(-vectors // wide)
    rows = work.rows * work.columns // chunk(work.rows * work.columns, columns) if work.positions_join else work.rows
    if _prefers_rows(work) if by_rows is None else by_rows:
        return Tiling(columns, wide, max(1, rows // _GROUPS), panels, unroll)
    return Tiling(columns, wide, rows, max(1, panels // _GROUPS), unroll)


def chunk(positions: int, columns: int) -> int:
    """How many of the positions of a product make a row: a divisor of few register tiles that wastes little of them."""
    for size in range(columns, positions, 1):
        if positions % size == 0 and -(-size // columns) * columns <= size * _WASTE:
            return size
    return positions

"""Tilings worth trying: a model of registers, ports and caches selects a few, measurement decides among them.

A step of a register tile loads vectors of filters and pixels, and multiplies each pair. How many loads and
multiply-adds start in a cycle, and how long a multiply-add takes, depends on the core (``Core``); the unused part of a
tile at an edge is lost (Goto and van de Geijn, 2008, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.machines.core import Core
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.machine import Machine

_FLOAT_BYTES = 4
_LOOP_INSTRUCTIONS = 4
_WIDTHS = (1, 2, 3, 4, 6, 8)
_TRIED = 4
# More rows hardly change which register tiles are best.
_MANY_ROWS = 128
_WASTE = 1.04
# Registers that stay free when a step is written out twice: the next operands are loaded into them.
_SPARE = 6
# For products by pairs of channels: tilings, and multiply-adds that are written out. Cycles of a load of 32 and of 64
# bits for each invocation, of a multiply-add whose sum is in the cache, and of a store.
_PAIRS_TRIED = 3
_PRODUCTS_WRITTEN_OUT = 448
_LOAD, _PAIR_LOAD, _MULTIPLY_ADD, _STORE = 100.0, 130.0, 2.0, 100.0


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

    def cycles(
        self,
        rows: int,
        columns: int,
        vectors: int,
        core: Core,
        line_cycles: float,
        *,
        prepares: bool = False,
        widens: bool = False,
    ) -> float:
        """Cycles per step for all tiles of a result, including narrower ones at the edges.

        Args:
            rows, columns: extents of the result.
            vectors: vectors of its channels.
            core: the CPU's core.
            line_cycles: cycles to move a line of filters to the first-level cache.
            prepares: whether the image's numbers are changed before they are multiplied.
            widens: whether filters are widened before they are multiplied.
        """
        total = 0.0
        for lines, one in _parts(rows, self.lines):
            for width, two in _parts(columns, self.columns):
                for wide, three in _parts(vectors, self.vectors):
                    step = self._step(lines * width, wide, core, line_cycles, prepares=prepares, widens=widens)
                    total += step * one * two * three
        return total

    def _step(
        self, pixels: int, vectors: int, core: Core, line_cycles: float, *, prepares: bool, widens: bool
    ) -> float:
        """Cycles of one step of a tile; writing several steps out hides the cost of the loop."""
        operations = pixels * (vectors + prepares) + vectors * widens
        together = core.lanes if core.indexes and self.unroll % core.lanes == 0 else 1
        slots = operations + pixels * (core.duplicates and together == 1)
        loads = pixels / together + vectors
        loop = _LOOP_INSTRUCTIONS / self.unroll
        busiest = max(
            slots / core.multiplies,
            loads / core.loads,
            core.latency,
            vectors * core.lines * line_cycles,
            (operations + loads + loop) / core.issue,
        )
        return busiest + 1 / self.unroll


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """Sizes of tiles over an extent, and how many there are of each."""
    whole, rest = divmod(extent, size)
    return [(size, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)


def tilings(work: Work, machine: Machine) -> list[Tiling]:
    """Tilings, best guess first.

    One has half of the sums that the registers could hold: these hide the latency of multiply-adds as well, and are
    often faster, which the model does not see (docs/records/tuning.md, "The whole tile space").
    """
    vectors = -(-work.channels // machine.lanes)
    rows, columns = (1, work.rows * work.columns) if work.positions_join else (work.rows, work.columns)
    free = _free(work, machine)
    shapes = register_shapes(rows, columns, vectors, work.depth, free, prepares=work.prepares)
    chosen = [*shapes[:_TRIED], *_small_shape(rows, columns, vectors, work.depth, free, prepares=work.prepares)]
    splits = [_split(work, vectors, shape, machine.threads, by_rows=_prefers_rows(work, machine)) for shape in chosen]
    other = _split(work, vectors, shapes[0], machine.threads, by_rows=not _prefers_rows(work, machine))
    return list(dict.fromkeys([*splits, other]))


def with_panels_of_many(usual: Sequence[Tiling], work: Work, machine: Machine) -> list[Tiling]:
    """Tilings for a row, and those with the panels that are tried for many rows.

    Filters beyond the cache are read as fast in panels of any width. So a file with plans for one row and for many can
    have them once.
    """
    if machine.in_subgroups or work.rows * work.columns > 1 or work.filter_bytes <= machine.core.resident_bytes:
        return list(usual)
    vectors, free = -(-work.channels // machine.lanes), _free(work, machine)
    listed = register_shapes(1, 1, vectors, work.depth, free, prepares=work.prepares)
    best = {shape.vectors: shape for shape in reversed(listed)}
    many = dict.fromkeys(tiling.vectors for tiling in tilings(replace(work, columns=_MANY_ROWS), machine))
    further = many.keys() - {tiling.vectors for tiling in usual}
    added = [best[wide] for wide in many if wide in further and wide in best]
    return [*usual, *(_split(work, vectors, shape, machine.threads, by_rows=False) for shape in added)]


def _free(work: Work, machine: Machine) -> Machine:
    """The machine with the registers that an instruction leaves."""
    return replace(machine, accumulators=machine.accumulators - work.operands)


def register_shapes(
    rows: int, columns: int, vectors: int, depth: int, machine: Machine, *, prepares: bool = False
) -> list[Shape]:
    """Register tiles for ``rows x columns`` positions, each a sum of ``depth`` steps, best guess first."""
    cost = _cost_of_shapes(rows, columns, vectors, depth, machine, prepares=prepares)
    return sorted(set(_shapes(rows, columns, vectors, depth, machine, prepares)), key=cost)


def _small_shape(rows: int, columns: int, vectors: int, depth: int, machine: Machine, *, prepares: bool) -> list[Shape]:
    """The best register tile with half of the sums; none for a single position, or a GPU, whose sums need not hide a
    latency."""
    if machine.in_subgroups or rows * columns == 1:
        return []
    sums = machine.accumulators // 2
    shapes = {Shape(1, balanced(columns, sums // wide), wide, 2) for wide in _WIDTHS if wide <= min(vectors, sums)}
    return sorted(shapes, key=_cost_of_shapes(rows, columns, vectors, depth, machine, prepares=prepares))[:1]


def _cost_of_shapes(
    rows: int, columns: int, vectors: int, depth: int, machine: Machine, *, prepares: bool
) -> Callable[[Shape], tuple[float, int, int]]:
    """The model by which register tiles are sorted."""
    core = machine.core

    def cost(shape: Shape) -> tuple[float, int, int]:
        panel = depth * shape.vectors * machine.vector_bytes
        line = core.line_cycles if 2 * panel <= core.resident_bytes else core.far_line_cycles
        return shape.cycles(rows, columns, vectors, core, line, prepares=prepares), shape.lines, shape.vectors

    return cost


def _shapes(rows: int, columns: int, vectors: int, depth: int, machine: Machine, prepares: bool) -> Iterator[Shape]:
    """Register tiles that fit the registers."""
    for wide in _WIDTHS:
        if wide > vectors:
            continue
        for pixels, unroll in _ways(wide, depth, machine, prepares):
            if pixels < 1:
                continue
            yield Shape(1, balanced(columns, pixels), wide, unroll)
            lines = pixels // columns
            if lines > 1 and rows > 1:
                yield Shape(balanced(rows, lines), columns, wide, unroll)


def _ways(wide: int, depth: int, machine: Machine, prepares: bool) -> Iterator[tuple[int, int]]:
    """The most pixels of a register tile, and the number of steps that are written out."""
    for spare, unroll in ((0, 1), (_SPARE, 2)):
        yield machine.pixels(wide, spare, prepares=prepares), unroll
    if machine.core.indexes and depth % machine.core.lanes == 0:
        # Each pixel's numbers for some steps are in one more register. With none to spare LLVM spills accumulators.
        yield (machine.registers - wide - 1) // (wide + 1), machine.core.lanes


def _prefers_rows(work: Work, machine: Machine) -> bool:
    """Whether workgroups partition rows. Then each reads all filters, which should stay in the cache."""
    return work.filter_bytes <= machine.core.resident_bytes


def shared_by_rows(listed: Sequence[Tiling], work: Work, machine: Machine) -> list[Tiling]:
    """Tilings of a product of any number of rows, whose workgroups share these where panels are too few to be shared.

    It has its workgroups share the panels itself where a call has few rows.
    """
    groups = many_workgroups(work.rows * work.columns, machine.threads)
    enough = long_workgroups(groups, machine.threads)
    shared = (
        replace(tiling, row_groups=groups, panel_groups=1)
        if tiling.row_groups == 1 and tiling.panel_groups < enough
        else tiling
        for tiling in listed
    )
    return [*dict.fromkeys(shared)]


def _split(work: Work, vectors: int, shape: Shape, threads: int, *, by_rows: bool) -> Tiling:
    """The tiling with a register tile's sizes, whose workgroups partition rows, or only panels."""
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


def pair_tilings(work: Work, machine: Machine) -> list[Tiling]:
    """Tilings for products by pairs of channels, best guess first; ``work.depth`` counts pairs, a multiple of four.

    They are for a device whose loads take far longer than its multiply-adds. Sums need not fit the registers: a sum in
    the cache costs a cycle or two, a load a hundred. What limits a tile is the time that the driver takes to compile
    it, which grows with the multiply-adds that are written out.
    """
    lanes = machine.lanes
    vectors = -(-work.channels // lanes)
    rows, columns = (1, work.rows * work.columns) if work.positions_join else (work.rows, work.columns)
    shapes = sorted(
        set(_pair_shapes(columns, vectors, work.depth, lanes)),
        key=lambda shape: (pair_cycles(shape, rows, columns, vectors, work.depth, lanes), shape.vectors),
    )
    return [_split(work, vectors, shape, machine.threads, by_rows=True) for shape in shapes[:_PAIRS_TRIED]]


def _pair_shapes(columns: int, vectors: int, depth: int, lanes: int) -> Iterator[Shape]:
    """Register tiles, with the pairs of a load of 64 bits or of 32 bits written out, which have to divide ``depth``."""
    for unroll in (width for width in (lanes, lanes // 2) if depth % width == 0):
        for wide in _WIDTHS:
            pixels = _PRODUCTS_WRITTEN_OUT // (2 * unroll * wide)
            if wide <= vectors and pixels:
                yield Shape(1, balanced(columns, pixels), wide, unroll)


def pair_cycles(shape: Shape, rows: int, columns: int, vectors: int, depth: int, lanes: int) -> float:
    """Cycles of all tiles of a result.

    Args:
        shape: the register tile.
        rows, columns: extents of the result.
        vectors: vectors of its channels.
        depth: pairs of numbers in a sum.
        lanes: invocations of a subgroup.
    """
    unroll = shape.unroll if depth % shape.unroll == 0 else lanes // 2
    pixel_load = _PAIR_LOAD if unroll == lanes else _LOAD
    total = 0.0
    for width, two in _parts(columns, shape.columns):
        for wide, three in _parts(vectors, shape.vectors):
            step = pixel_load * width / unroll + _PAIR_LOAD * wide + 2 * _MULTIPLY_ADD * width * wide
            total += (step * depth + _STORE * width * wide) * rows * two * three
    return total

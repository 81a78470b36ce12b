"""The loops around a register tile: workgroups, panels of channels, rows, tiles of columns; and what a tile stores.

Within a workgroup a panel's filters stay in the cache while all its rows are computed (Goto and van de Geijn, 2008,
section 4; Liu et al., NeoCPU, 2019, section 3.1).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.byte_stores import Part, stores_to
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.loops.panels import Panel, PanelGrid
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.loops.tiles import Axis, TileRun, tile_runs
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Tile:
    """A register tile while its code is emitted.

    Attributes:
        panel: its channels.
        origin: its position in the result.
        run: its columns, and the taps that touch the image.
        lines: its rows, and the taps that touch the image; None for a single row at any position.
        ordinal: its number among the tiles of its panel in this workgroup.
        depth: how many loops and branches are around its panel.
    """

    panel: Panel
    origin: TileOrigin
    run: TileRun
    lines: TileRun | None
    ordinal: Index
    depth: int = 0

    def pixel(self, line: int, column: int) -> int:
        """Number of a pixel in the tile; each of its vectors has an accumulator."""
        return line * self.run.width + column

    def tile_vectors(self, lanes: int) -> list[TileVector]:
        """All vectors of the tile, in the order of the accumulators."""
        return [
            TileVector(line, column, vector, self.panel.count(vector, lanes))
            for line in range(self.lines.width if self.lines else 1)
            for column in range(self.run.width)
            for vector in range(self.panel.vectors)
        ]


Starts = Callable[[], list[ir.Value]]
Accumulate = Callable[[Tile, Starts], list[ir.Value]]


@dataclass(frozen=True)
class Loops:
    """Loops over the windows of images whose results are stored row by row.

    Attributes:
        batches: N.
        rows: windows along H.
        columns: windows along W.
        result: how results are stored.
        epilogue: the ops around the root.
        lanes: elements of a vector.
    """

    batches: int
    rows: Axis
    columns: Axis
    result: Access
    epilogue: Epilogue
    lanes: int

    def joined(self, columns: int) -> Self:
        """The loops for windows of one pixel, with the pixels of all rows rearranged into rows of ``columns``.

        Raises:
            RejectionError: if rows are not adjacent in memory.
        """
        extent = self.columns.output

        def change(access: Access) -> Access:
            return access.flattened(extent).split(columns)

        rows = self.rows.output * extent // columns
        return replace(
            self,
            rows=Axis(rows, rows, 1, 1, 1, 0),
            columns=Axis(columns, columns, 1, 1, 1, 0),
            result=change(self.result),
            epilogue=self.epilogue.map_accesses(change),
        )


@dataclass(frozen=True)
class Nest(Loops):
    """Results ``[N, OH, OW, OC]`` in register tiles.

    Attributes:
        channels: OC.
        tiling: sizes of tiles.
        loads_early: whether a panel's scales and initial values are loaded before the loops over its pixels.
    """

    channels: int
    tiling: Tiling
    loads_early: bool = False

    @property
    def grid(self) -> PanelGrid:
        """How channels are cut into panels."""
        return PanelGrid(self.channels, self.lanes, self.tiling.vectors)

    @property
    def tiles(self) -> int:
        """Tiles of a panel."""
        return -(-self.rows.output // self.tiling.lines) * self.tiles_of_row

    @property
    def tiles_of_row(self) -> int:
        return -(-self.columns.output // self.tiling.columns)

    @property
    def tiles_of_group(self) -> int:
        """Tiles of a panel in a workgroup, if all have as many."""
        return -(-self.tiles // self.tiling.row_groups)

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups along rows, panels and batches."""
        return self.tiling.row_groups, self.tiling.panel_groups, self.batches

    @property
    def is_padded(self) -> bool:
        """Whether some window reaches beyond the image."""
        return self.rows.is_padded or self.columns.is_padded

    def write(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        group: tuple[Index, Index, Index],
        accumulate: Accumulate,
    ) -> None:
        """Emit one workgroup's code.

        Args:
            asm: emits the code.
            memories: all buffers.
            group: position of the workgroup.
            accumulate: emits the sums of a tile, given a function that emits the values that they start from.
        """
        self.write_share(
            asm, memories, group, workgroup_range(asm, self.rows.output, self.groups[0], group[0]), accumulate
        )

    def write_share(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        group: tuple[Index, Index, Index],
        rows: tuple[Index, Index],
        accumulate: Accumulate,
    ) -> None:
        """Emit code for a range of rows and a workgroup's share of the panels."""
        panels = workgroup_range(asm, self.grid.panels, self.groups[1], group[1])
        has_last = asm.equal(group[1], self.groups[1] - 1)
        _Writer(self, asm, memories, accumulate).write(Region(group[2], rows, panels, has_last))

    def write_rows(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        batch: Index,
        rows: tuple[Index, Index],
        accumulate: Accumulate,
    ) -> None:
        """Emit code for all channels of a range of rows, given by its first row and its end."""
        _Writer(self, asm, memories, accumulate).write(Region(batch, rows, (0, self.grid.panels), True))

    def write_panels(
        self,
        asm: Assembler,
        group: tuple[Index, Index, Index],
        write: Callable[[Panel], None],
    ) -> None:
        """Emit code for the panels of a workgroup, each of which ``write`` emits."""
        first, end = workgroup_range(asm, self.grid.panels, self.groups[1], group[1])
        each_panel(asm, self.grid, (first, end), asm.equal(group[1], self.groups[1] - 1), write)

    def write_panel(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        rows: tuple[Index, Index],
        panel: Panel,
        accumulate: Accumulate,
        batch: Index = 0,
        step: int = 1,
    ) -> None:
        """Emit code for a panel of every ``step``-th of a range of rows of a batch, by default the only one."""
        region = Region(batch, rows, (panel.index, panel.index), False, step)
        _Writer(self, asm, memories, accumulate).write_panel(panel, region)


@dataclass(frozen=True)
class NestKernel:
    """Base of kernels whose workgroups are those of a nest.

    Attributes:
        nest: loops over tiles of the result.
    """

    nest: Nest

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.nest.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.nest.lanes


class NestCode(NestKernel, ABC):
    """Base of the kernels that compute the tiles of a nest."""

    @abstractmethod
    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        """The function that emits the sums of a tile."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        self.nest.write(asm, memories, group, self.accumulation(asm, memories))

    def write_rows(self, asm: Assembler, memories: Sequence[ir.Value], batch: Index, rows: tuple[Index, Index]) -> None:
        """Emit code for all channels of a range of rows, given by its first row and its end."""
        self.nest.write_rows(asm, memories, batch, rows, self.accumulation(asm, memories))


@dataclass(frozen=True)
class Region:
    """A part of the result while its code is emitted.

    Attributes:
        batch: index of the batch.
        rows: first row and end.
        panels: first panel and end.
        has_last: whether it includes the last panel.
        step: between rows that are computed, where a tile is one row at any position.
    """

    batch: Index
    rows: tuple[Index, Index]
    panels: tuple[Index, Index]
    has_last: Condition
    step: int = 1


def each_panel(
    asm: Assembler,
    grid: PanelGrid,
    panels: tuple[Index, Index],
    has_last: Condition,
    write: Callable[[Panel], None],
) -> None:
    """Emit ``write`` for a range of panels, the last of which may have fewer channels."""
    (first, end), full = panels, grid.full
    if full:
        asm.repeat(first, asm.minimum(end, full), 1, lambda index: write(grid.full_panel(index)))
    if full < grid.panels:
        asm.when(has_last, lambda: write(grid.last_panel(full)))


class _Writer:
    def __init__(self, nest: Nest, asm: Assembler, memories: Sequence[ir.Value], accumulate: Accumulate) -> None:
        self._nest = nest
        self._asm = asm
        self._memories = memories
        self._accumulate = accumulate
        self._depth = 0

    def write(self, region: Region) -> None:
        """Emit the code of a part of the result."""
        write = functools.partial(self.write_panel, region=region)
        each_panel(self._asm, self._nest.grid, region.panels, region.has_last, write)

    def write_panel(self, panel: Panel, region: Region) -> None:
        """Emit the code of a panel of a part of the result."""
        nest, asm, rows, self._depth = self._nest, self._asm, region.rows, self._asm.depth

        def line(lines: TileRun | None, row: Index) -> None:
            inside = asm.sub(row, rows[0])
            ordinal = asm.mul(asm.divide(inside, nest.tiling.lines)[0], nest.tiles_of_row)
            for run in tile_runs(nest.columns, nest.tiling.columns):
                self._run(panel, TileOrigin(region.batch, row, 0, 0, inside), ordinal, run, lines)

        if nest.tiling.lines == 1:
            asm.repeat(*rows, region.step, functools.partial(line, None))
            return
        for lines in tile_runs(nest.rows, nest.tiling.lines):
            asm.repeat(lines.start, lines.end, lines.width, functools.partial(line, lines))

    def _run(self, panel: Panel, line: TileOrigin, ordinal: Index, run: TileRun, lines: TileRun | None) -> None:
        asm, tiling = self._asm, self._nest.tiling
        vector = asm.mul(panel.index, tiling.vectors)

        def every(column: Index) -> None:
            number = asm.add(ordinal, asm.divide(column, tiling.columns)[0])
            origin = TileOrigin(line.batch, line.row, column, vector, line.inside)
            self._tile(Tile(panel, origin, run, lines, number, self._depth))

        asm.repeat(run.start, run.end, run.width, every)

    def _tile(self, tile: Tile) -> None:
        nest, asm, memories, origin = self._nest, self._asm, self._memories, tile.origin
        tile_vectors = tile.tile_vectors(nest.lanes)

        def starts() -> list[ir.Value]:
            if nest.loads_early and nest.epilogue.starts_alike:
                return self._early_starts(tile)
            return [nest.epilogue.start(asm, memories, origin, tile_vector) for tile_vector in tile_vectors]

        totals, result = self._accumulate(tile, starts), nest.result
        stores = stores_to(asm, memories[result.memory])
        for tile_vector, total in zip(tile_vectors, totals, strict=True):
            value = nest.epilogue.finish(asm, memories, origin, tile_vector, total)
            place, distance = origin.base(asm, result), origin.distance(result, tile_vector)
            stores.add(Part(value, place, distance, tile_vector.channels))
        stores.finish()

    def _early_starts(self, tile: Tile) -> list[ir.Value]:
        """Initial values that all pixels share, before the loops over these."""
        nest, asm, tile_vectors = self._nest, self._asm, tile.tile_vectors(self._nest.lanes)
        with asm.outside(tile.depth):
            origin = TileOrigin(tile.origin.batch, 0, 0, asm.mul(tile.panel.index, nest.tiling.vectors))
            loaded = [
                nest.epilogue.start(asm, self._memories, origin, tile_vector)
                for tile_vector in tile_vectors[: tile.panel.vectors]
            ]
        return [loaded[tile_vector.vector] for tile_vector in tile_vectors]


def kernel_rows(asm: Assembler, rows: Axis, tile: Tile, totals: list[ir.Value], body: RowBody) -> list[ir.Value]:
    """Run ``body`` for the kernel rows that touch the image.

    Args:
        asm: emits the code.
        rows: windows along H.
        tile: the tile.
        totals: accumulators.
        body: emits a kernel row, given the image row that the tile's first window reads, the number of the kernel row,
            the lines of the tile that touch the image, and the accumulators; returns the new accumulators.
    """
    top = _top(asm, rows, tile)

    def every(lines: Sequence[int]) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
        return lambda tap, carried: body(asm.add(top, asm.mul(tap, rows.dilation)), tap, lines, carried)

    if tile.lines is None:
        return asm.loop(*touching_rows(asm, rows, tile), 1, totals, every((0,)))
    for segment in tile.lines.segments:
        totals = asm.loop(segment.first, segment.end, 1, totals, every(segment.pixels))
    return totals


def touching_rows(asm: Assembler, rows: Axis, tile: Tile) -> tuple[Index, Index]:
    """First and end of the kernel rows that touch the image, for a tile of a single row at any position.

    If none does, the end is at most the first.
    """
    if not rows.is_padded:
        return 0, rows.kernel
    top = _top(asm, rows, tile)
    first = asm.maximum(0, asm.divide_up(asm.sub(0, top), rows.dilation))
    return first, asm.minimum(rows.kernel, asm.divide_up(asm.sub(rows.input, top), rows.dilation))


def _top(asm: Assembler, rows: Axis, tile: Tile) -> Index:
    """The image row at which the tile's first window begins."""
    return asm.add(asm.mul(tile.origin.row, rows.stride), -rows.padding)


RowBody = Callable[[Index, Index, Sequence[int], list[ir.Value]], list[ir.Value]]

"""The loops of a kernel with AMX: panels, blocks of tiles, taps, steps over input channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.amx.contraction import TileContraction
from sartor.codegen.kernels.amx.deferred_epilogue import DeferredEpilogue
from sartor.codegen.kernels.amx.epilogue import Block, TileFinish
from sartor.codegen.kernels.amx.prefetch import FilterFetch
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.amx import ROW_BYTES, ROWS, TILES, AmxUnit, TileShape
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class TileKernel(TileContraction):
    """The kernel of a contraction with AMX."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        _Writer(self, asm, memories, group).write()


class _Writer:
    """Emits one workgroup: copies of what it reads, then blocks of tiles."""

    def __init__(
        self,
        of: TileContraction,
        asm: Assembler,
        memories: Sequence[ir.Value],
        group: tuple[Index, Index, Index],
    ) -> None:
        self._of, self._asm, self._memories, self._group = of, asm, memories, group
        self._amx = AmxUnit(asm)
        self._image = memories[of.memories[0]]
        self._filters = memories[of.memories[1] if of.interleaving is None else -1]
        tiling = of.tiling
        # Tiles of sums come first, then tiles of pixels; filters take turns in the remaining tiles.
        self._tile_positions = of.tile_positions
        self._pixels = len(self._tile_positions) * tiling.vectors
        self._turns = min(TILES - self._pixels - len(self._tile_positions), tiling.vectors)
        self._sums = asm.scratch(self._pixels * ROWS * of.lanes, ir.Type.parse(of.element.sums))
        self._deferred = DeferredEpilogue(of, asm, TileFinish(of, asm, memories, group[2], self._sums))

    def write(self) -> None:
        of, asm = self._of, self._asm
        strips = workgroup_range(asm, of.strips, of.tiling.row_groups, self._group[0])
        self._local = self._own() if of.copied else 0
        if of.is_staged:
            self._stage(strips)
        self._amx.open(self._shapes())
        first = strips[0] if of.rows.output == 1 else asm.mul(strips[0], of.column_blocks)
        panels = workgroup_range(asm, of.grid.panels, of.tiling.panel_groups, self._group[1])
        self._fetching = FilterFetch(of, asm, self._filters, first, panels)
        asm.repeat(*panels, 1, lambda index: self._panel(index, strips))
        self._amx.close()
        self._deferred.drain(of.grid.full_panel(0))

    def _shapes(self) -> list[TileShape]:
        of, tiling = self._of, self._of.tiling
        size = ROW_BYTES // of.element.depth * tiling.depth
        sums = [TileShape(tiling.pixels, ROW_BYTES)] * self._pixels
        pixels = [TileShape(tiling.pixels, size)] * len(self._tile_positions)
        return [*sums, *pixels, *[TileShape(tiling.depth // of.element.group, ROW_BYTES)] * self._turns]

    def _own(self) -> Index:
        """Offset of this workgroup's copies in the workspace."""
        of, asm = self._of, self._asm
        x, y, _ = of.groups
        number = asm.add(asm.mul(asm.add(asm.mul(self._group[2], y), self._group[1]), x), self._group[0])
        return asm.mul(number, of.copied)

    def _stage(self, strips: tuple[Index, Index]) -> None:
        """Copy the rows that these strips read."""
        of, asm = self._of, self._asm
        first, last = self._line(strips[0]), self._line(asm.sub(strips[1], 1))
        lines = asm.add(asm.sub(last, first), of.tiling.lines)
        count = asm.add(asm.mul(asm.sub(lines, 1), of.rows.stride), (of.rows.kernel - 1) * of.rows.dilation + 1)
        self._top = asm.add(asm.mul(first, of.rows.stride), -of.rows.padding)
        # An empty range is skipped: its number of rows would be negative, and zeros would overwrite other copies.
        asm.branch(asm.equal(*strips), lambda: None, lambda: self._copy((self._top, count)))

    def _copy(self, rows: tuple[Index, Index]) -> None:
        target = self._memories[-1]
        self._of.staging.write(self._asm, self._image, self._group[2], target, self._local, rows)

    def _line(self, strip: Index) -> Index:
        """First row of a strip; the last strip begins earlier if strips do not divide the rows."""
        of, asm = self._of, self._asm
        if of.rows.output == 1:
            return 0
        return asm.minimum(asm.mul(strip, of.tiling.lines), of.rows.output - of.tiling.lines)

    def _panel(self, index: Index, strips: tuple[Index, Index]) -> None:
        of, asm, grid = self._of, self._asm, self._of.grid

        def write(panel: Panel) -> None:
            self._interleave(panel)
            if of.rows.output == 1:
                asm.repeat(*strips, 1, lambda block: self._at(panel, 0, 0, block))
                return
            asm.repeat(*strips, 1, lambda strip: self._row(panel, strip))

        rest = grid.last_panel(index)

        def write_rest() -> None:
            self._deferred.drain(grid.full_panel(index))
            write(rest)
            self._deferred.drain(rest)

        is_rest = asm.equal(index, grid.full) if grid.full < grid.panels else False
        asm.branch(is_rest, write_rest, lambda: write(grid.full_panel(index)))

    def _interleave(self, panel: Panel) -> None:
        """Copy a panel of filters if they are no weights, for all blocks of the workgroup."""
        of, asm = self._of, self._asm
        if of.interleaving is None:
            return
        source = self._memories[of.memories[1]], self._group[2]
        of.interleaving.write(asm, source, (self._filters, self._panel_start(panel)), panel)

    def _panel_start(self, panel: Panel) -> Index:
        """Offset of the filters of a panel."""
        of, asm = self._of, self._asm
        if of.interleaving is None:
            return asm.mul(panel.index, of.panel)
        return asm.add(self._local, of.copied - of.interleaving.elements)

    def _row(self, panel: Panel, strip: Index) -> None:
        row, first = self._line(strip), self._asm.mul(strip, self._of.column_blocks)
        self._asm.repeat(0, self._of.column_blocks, 1, lambda block: self._at(panel, row, first, block))

    def _at(self, panel: Panel, row: Index, first: Index, block: Index) -> None:
        of, asm = self._of, self._asm
        size = of.offsets[-1] + of.tiling.pixels
        fresh = asm.mul(block, size)
        column = asm.minimum(fresh, of.columns.output - size)
        self._block(Block(panel, row, column, asm.add(first, block), fresh))

    def _block(self, block: Block) -> None:
        vectors, tiling = block.panel.vectors, self._of.tiling
        used = [
            position * tiling.vectors + vector
            for position in range(len(self._tile_positions))
            for vector in range(vectors)
        ]
        for tile in used:
            self._amx.zero(tile)
        self._taps(block)
        step = self._amx.step(ROW_BYTES)
        for tile in used:
            self._amx.store(tile, self._amx.address(self._sums, tile * ROWS * self._of.lanes), step)
        self._deferred.keep(block)

    def _taps(self, block: Block) -> None:
        """Emit the products of all taps and input channels of a block."""
        of, asm = self._of, self._asm
        filters = self._panel_start(block.panel)
        if not of.is_staged:
            top = asm.add(
                asm.mul(self._group[2], of.image.batch),
                asm.mul(block.row, of.rows.stride * of.image.row),
                asm.mul(block.column, of.columns.stride * of.image.column),
            )
            self._run(block, self._image, top, filters, 0)
            return
        staging = of.staging
        line = asm.sub(asm.mul(block.row, of.rows.stride), asm.add(self._top, of.rows.padding))
        start = asm.add(self._local, asm.mul(line, staging.row), asm.mul(block.column, staging.pixel))

        def every(tap: Index) -> None:
            first = asm.add(start, asm.mul(tap, of.rows.dilation * staging.row))
            begin = asm.add(filters, asm.mul(tap, of.runs * of.tap))
            for column in range(of.runs):
                read = asm.add(first, staging.tap(column))
                run = asm.add(asm.mul(tap, of.runs), column)
                self._run(block, self._memories[-1], read, asm.add(begin, column * of.tap), run)

        asm.repeat(0, of.rows.kernel, 1, every)

    def _run(self, block: Block, memory: ir.Value, start: Index, filters: Index, run: Index) -> None:
        """Emit the products of a run, and a part of the previous block's epilogue; ``run`` counts within the block."""
        of, asm, tiling = self._of, self._asm, self._of.tiling
        of_run = of.parts // of.row_runs
        size = tiling.vectors * of.tile

        def every(chunk: Index) -> None:
            used = asm.add(filters, asm.mul(chunk, size))
            self._product(block, memory, asm.add(start, asm.mul(chunk, tiling.depth)), used)
            step = asm.add(asm.mul(run, of.chunks), chunk)
            self._fetching.step(block, used, step)
            if of_run > 1:
                self._deferred.part(block, step)

        if of.writes_out:
            for chunk in range(of.chunks):
                every(chunk)
        else:
            asm.repeat(0, of.chunks, 1, every)
        self._fetching.run(block, run)
        if of_run == 1:
            self._deferred.part(block, run)

    def _product(self, block: Block, memory: ir.Value, start: Index, filters: Index) -> None:
        """Emit one step: each tile of pixels by each tile of filters."""
        of, amx, tiling = self._of, self._amx, self._of.tiling
        line, pixel = self._steps()
        step = amx.step(pixel * of.element.bytes)
        for vector in range(block.panel.vectors):
            turn = self._pixels + len(self._tile_positions) + vector % self._turns
            where = amx.address(self._filters, self._asm.add(filters, vector * of.tile))
            amx.load(turn, where, amx.step(ROW_BYTES))
            for number, (row, tile) in enumerate(self._tile_positions):
                if vector == 0:
                    distance = row * line + of.offsets[tile] * pixel
                    amx.load(self._pixels + number, amx.address(memory, self._asm.add(start, distance)), step)
                amx.multiply(of.element, number * tiling.vectors + vector, self._pixels + number, turn)
        if of.rows.output == 1 and not of.is_staged:
            self._fetch_pixels(block, start, pixel)

    def _fetch_pixels(self, block: Block, start: Index, pixel: int) -> None:
        """Prefetch the pixels of the next block, which are too far apart for the hardware's prefetcher. Only the first
        panel does, because the others find them in the cache."""
        of, asm = self._of, self._asm
        size = of.offsets[-1] + of.tiling.pixels
        following = asm.add(start, size * pixel)

        def fetch() -> None:
            for number in range(size):
                asm.prefetch(self._image, asm.add(following, number * pixel))

        asm.when(self._fetching.is_first(block.panel), fetch)

    def _steps(self) -> tuple[int, int]:
        """Distances in elements between what neighbouring rows, and neighbouring pixels, of the result read."""
        of = self._of
        if of.is_staged:
            return of.rows.stride * of.staging.row, of.staging.pixel
        return of.rows.stride * of.image.row, of.columns.stride * of.image.column

"""Convolutions and matrix products on vectors: each pixel of a tile by each vector of filters, read front to back.

A matrix product is a convolution of an image of one row by a 1x1 filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.half_pairs import HalfPairFma
from sartor.codegen.kernels.isa.microkernel import Lhs, Prefetch, Rhs, close_tile, multiply_add, open_tile
from sartor.codegen.kernels.isa.multipliers import FMA, Multiplier
from sartor.codegen.kernels.isa.pairs import PairFma, check_even
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Accumulate, NestCode, Starts, Tile, kernel_rows
from sartor.codegen.kernels.loops.tiles import Segment, before_another, tile_runs
from sartor.codegen.kernels.vector.filter_scales import FilterScales
from sartor.codegen.kernels.vector.integer_sums import IntegerSums
from sartor.codegen.kernels.vector.row_sums import RowSums
from sartor.codegen.mlir.iree_compiler import ir

# Smaller filters stay in the second-level cache, or arrive quickly enough.
_CACHED_BYTES = 1 << 19
_MOST_TILES = 64
# Bytes from filters that are read once to those that are fetched meanwhile. The hardware's prefetchers follow a core
# that computes for each line too late.
_AHEAD = 2048


@dataclass(frozen=True)
class FilterStrides:
    """Distances in elements in the filters.

    Attributes:
        batch: between batches; 0 for weights.
        panel: between panels of channels.
        row: between rows of the kernel.
        column: between columns of the kernel.
        depth: between input channels, or between groups that are multiplied at once.
        vector: between vectors of a panel.
        padded: whether panels are filled up with zeros to full vectors.
    """

    batch: int
    panel: int
    row: int
    column: int
    depth: int
    vector: int
    padded: bool


@dataclass(frozen=True)
class Contraction(NestCode):
    """A convolution ``[N, H, W, IC] -> [N, OH, OW, OC]`` over memory.

    Attributes:
        depth: IC.
        image: strides of the image.
        filters: strides of the filters.
        memories: positions of image and filters among the buffers.
        multiplier: how image and filters are multiplied.
        meaning: converts sums of integers, or of products by integers, to real numbers; None for sums of f32.
        is_open: whether the number of tiles is known only when it runs.
    """

    depth: int
    image: ImageStrides
    filters: FilterStrides
    memories: tuple[int, int]
    multiplier: Multiplier = FMA
    meaning: IntegerSums | RowSums | FilterScales | None = None
    is_open: bool = False

    @property
    def streams(self) -> bool:
        """Whether to prefetch filters: they come from memory, and a panel is used long enough to fetch the next one."""
        return self._is_far and self.nest.tiling.row_groups == 1 and 1 < self.nest.tiles <= _MOST_TILES

    @property
    def reads_once(self) -> bool:
        """Whether to prefetch filters of the same panel, as these come from memory or an outer cache for one tile."""
        return self._is_far and self.nest.tiles == 1 and not self.is_open

    @property
    def _is_far(self) -> bool:
        size = self.filters.panel * self.nest.grid.panels * self.multiplier.bytes
        return self.filters.padded and size > _CACHED_BYTES

    def joined(self, columns: int) -> Contraction:
        """The contraction for windows of one pixel, with the pixels of all rows rearranged into rows of ``columns``.

        Raises:
            RejectionError: if rows are not adjacent in memory.
        """
        if self.nest.is_padded or self.image.row != self.nest.columns.output * self.image.column:
            raise RejectionError("rows of the image are not adjacent")
        image = replace(self.image, row=columns * self.image.column)
        return replace(self, nest=self.nest.joined(columns), image=image)

    def check(self) -> None:
        """Check that pixels of fewer channels than are multiplied at once can be read, and pairs at even offsets.

        Raises:
            RejectionError: if they cannot, because a pixel would need a neighbour in its row to be read with.
        """
        if isinstance(self.multiplier, (PairFma, HalfPairFma)):
            image = self.image
            check_even((image.batch, image.row, image.column, image.block, image.blocks))
        if self.depth < self.multiplier.group:
            columns = self.nest.columns
            for run in tile_runs(columns, self.nest.tiling.columns):
                for segment in run.segments:
                    for tap in range(segment.first, segment.end):
                        before_another(columns, run, segment, tap)

    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        """The function that emits the sums of a tile."""
        return self.shifted_accumulation(asm, memories, 0)

    def shifted_accumulation(self, asm: Assembler, memories: Sequence[ir.Value], shift: Index) -> Accumulate:
        """The same for an image whose elements lie ``shift`` after where its strides say."""
        return _TileWriter(self, asm, memories, shift).accumulate


@dataclass(frozen=True)
class _Run:
    """Adjacent taps of a kernel row that touch the same pixels of a tile, on some of its lines.

    Attributes:
        tile: the tile of the result.
        lines: lines of the tile.
        segment: taps and pixels.
        panel: offset of the panel's filters.
        prefetch: later filters that the tile fetches; None for none.
    """

    tile: Tile
    lines: tuple[int, ...]
    segment: Segment
    panel: Index
    prefetch: Prefetch | None


class _TileWriter:
    """Emits the reduction of a tile, from the kernel's rows inwards."""

    def __init__(self, contraction: Contraction, asm: Assembler, memories: Sequence[ir.Value], shift: Index) -> None:
        self._of = contraction
        self._asm = asm
        self._shift = shift
        self._image, self._filters = (memories[memory] for memory in contraction.memories)

    def accumulate(self, tile: Tile, starts: Starts) -> list[ir.Value]:
        of, asm = self._of, self._asm
        if of.meaning is None:
            return self._sums(tile, starts())
        memories = (self._image, self._filters)
        sums = self._sums(tile, of.meaning.starts(asm, of.nest, memories, tile))
        return of.meaning.reals(asm, of.nest, memories, tile, sums, starts())

    def _sums(self, tile: Tile, totals: list[ir.Value]) -> list[ir.Value]:
        of, asm, origin = self._of, self._asm, tile.origin
        columns = of.nest.columns
        left = asm.add(
            asm.mul(origin.batch, of.image.batch),
            asm.mul(origin.column, columns.stride * of.image.column),
            -columns.padding * of.image.column,
            self._shift,
        )
        panel = asm.add(asm.mul(origin.batch, of.filters.batch), asm.mul(tile.panel.index, of.filters.panel))
        prefetch = self._prefetch(tile, panel)

        def every(row: Index, tap: Index, lines: Sequence[int], carried: list[ir.Value]) -> list[ir.Value]:
            image = asm.add(left, asm.mul(row, of.image.row))
            filters = asm.mul(tap, of.filters.row)
            for segment in tile.run.segments:
                run = _Run(tile, tuple(lines), segment, panel, prefetch)
                carried = self._segment(run, image, filters, carried)
            return carried

        accumulators = open_tile(of.multiplier, totals, tile.panel.vectors)
        sums = kernel_rows(asm, of.nest.rows, tile, accumulators, every)
        return close_tile(of.multiplier, sums, tile.panel.vectors, len(totals))

    def _segment(self, run: _Run, image: Index, filters: Index, totals: list[ir.Value]) -> list[ir.Value]:
        """Emit the taps of a kernel row, as one loop over input channels if these are adjacent across taps."""
        of, asm, segment = self._of, self._asm, run.segment
        step, taps = of.nest.columns.dilation * of.image.column, segment.end - segment.first
        groups, rest = divmod(of.depth, of.multiplier.group)
        if not groups:
            return self._few_channels(run, image, filters, totals)
        adjacent = of.image.blocks == of.image.block and not rest
        if taps == 1 or (adjacent and step == of.depth and of.filters.column == groups * of.filters.depth):
            start = asm.add(image, segment.first * step)
            begin = asm.add(filters, segment.first * of.filters.column)
            return self._channels(run, start, begin, taps * of.depth, totals)

        def every(tap: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(image, asm.mul(tap, step))
            begin = asm.add(filters, asm.mul(tap, of.filters.column))
            return self._channels(run, start, begin, of.depth, carried)

        return asm.loop(segment.first, segment.end, 1, totals, every)

    def _few_channels(self, run: _Run, image: Index, filters: Index, totals: list[ir.Value]) -> list[ir.Value]:
        """Emit taps of fewer channels than are multiplied at once; the filters of the others are zero."""
        of, asm, segment = self._of, self._asm, run.segment
        missing = of.multiplier.group - of.depth
        for tap in range(segment.first, segment.end):
            start = asm.add(image, tap * of.nest.columns.dilation * of.image.column)
            begin = asm.add(filters, tap * of.filters.column)
            followed = before_another(of.nest.columns, run.tile.run, segment, tap)
            last = tuple(pixel for pixel in segment.pixels if pixel not in followed)
            # A group extends into the next pixel, or begins in the one before it: beyond the image there may be no
            # memory.
            for pixels, skipped in ((followed, 0), (last, missing)):
                if pixels:
                    lhs, rhs = self._operands(run, asm.add(start, -skipped), begin, pixels)
                    multiplier = of.multiplier.without(skipped)
                    totals = multiply_add(asm, lhs, rhs, 1, 1, totals, multiplier)
        return totals

    def _channels(self, run: _Run, image: Index, filters: Index, count: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Emit the input channels, block by block."""
        of, asm = self._of, self._asm
        if of.image.blocks == of.image.block:
            return self._adjacent(run, image, filters, count, totals)

        def every(block: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(image, asm.mul(block, of.image.blocks))
            begin = asm.add(filters, asm.mul(block, of.image.block // of.multiplier.group * of.filters.depth))
            return self._adjacent(run, start, begin, of.image.block, carried)

        return asm.loop(0, count // of.image.block, 1, totals, every)

    def _adjacent(self, run: _Run, image: Index, filters: Index, count: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Emit adjacent input channels."""
        of, asm = self._of, self._asm
        lhs, rhs = self._operands(run, image, filters, run.segment.pixels)
        unroll, group = of.nest.tiling.unroll, of.multiplier.group
        totals = multiply_add(asm, lhs, rhs, count // group, unroll, totals, of.multiplier)
        if count % group == 0:
            return totals
        # The last numbers are read together with some before them, because beyond them there may be no memory.
        lhs = replace(lhs, start=asm.add(image, count - group))
        rhs = replace(rhs, start=asm.add(rhs.start, count // group * rhs.step), prefetch=None)
        return multiply_add(asm, lhs, rhs, 1, 1, totals, of.multiplier.without(group - count % group))

    def _operands(self, run: _Run, image: Index, filters: Index, columns: tuple[int, ...]) -> tuple[Lhs, Rhs]:
        """The operands for some columns of a tile, from the given offsets in the image and in the panel's filters
        on."""
        of, asm, lanes, panel = self._of, self._asm, self._of.nest.lanes, run.tile.panel
        line, step = of.nest.rows.stride * of.image.row, of.nest.columns.stride * of.image.column
        pixels = {
            run.tile.pixel(line_of_tile, pixel): line_of_tile * line + pixel * step
            for line_of_tile in run.lines
            for pixel in columns
        }
        vectors = [
            (index * of.filters.vector, lanes if of.filters.padded else panel.count(index, lanes))
            for index in range(panel.vectors)
        ]
        prefetch = run.prefetch
        if prefetch is not None:
            step = asm.divide(filters, of.filters.depth)[0]
            prefetch = replace(prefetch, start=asm.add(prefetch.start, asm.mul(step, prefetch.step)))
        rhs = Rhs(self._filters, asm.add(run.panel, filters), of.filters.depth, vectors, prefetch)
        return Lhs(self._image, image, pixels), rhs

    def _prefetch(self, tile: Tile, panel: Index) -> Prefetch | None:
        """The part of the next panel that a tile fetches, each an equal one, or memory could not keep up; or what
        follows soon in its own panel."""
        of, asm = self._of, self._asm
        if of.reads_once:
            return Prefetch(asm.add(panel, _AHEAD // of.multiplier.bytes), of.filters.depth, is_soon=True)
        steps = of.filters.panel // of.filters.depth
        if of.is_open and of._is_far:
            # There may be one tile or many: the first two fetch a half each, which later ones find in the cache.
            half, share = asm.minimum(tile.origin.row, 1), -(-of.filters.depth // 2)
            return Prefetch(asm.add(panel, of.filters.panel, asm.mul(half, steps * share)), share)
        if not of.streams:
            return None
        share = -(-of.filters.depth // of.nest.tiles)
        return Prefetch(asm.add(panel, of.filters.panel, asm.mul(tile.ordinal, steps * share)), share)

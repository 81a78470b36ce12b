"""Windows over each channel by itself: depthwise convolutions and pooling, on vectors of channels.

Each pixel is loaded once per kernel row, for all windows of the tile that contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.nest import Accumulate, NestCode, Starts, Tile, kernel_rows
from sartor.codegen.mlir.iree_compiler import ir

Combine = Callable[[Assembler, ir.Value, ir.Value | None, ir.Value], ir.Value]
_MOST_WRITTEN_OUT = 16


@dataclass(frozen=True)
class TapStrides:
    """Distances in elements in the filters, between rows and columns of the kernel and between vectors of channels."""

    row: int
    column: int
    vector: int


@dataclass(frozen=True)
class Sliding(NestCode):
    """A window ``[N, H, W, C] -> [N, OH, OW, C]`` over memory.

    Attributes:
        image: access to the image, by its own rows and columns.
        taps: strides of the filters; None if there are none.
        filters: position of the filters among the buffers, if there are any.
        combine: emits the new accumulator from a pixel, its filter or None, and the accumulator.
        ring: if the image's memory holds a panel's vectors of some rows only, how many: a row is at its number modulo
            these. 0 if it holds all.
    """

    image: Access
    taps: TapStrides | None
    filters: int
    combine: Combine
    ring: int = 0

    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        """The function that emits the sums, or other reductions, of a tile."""
        return _TileWriter(self, asm, memories).accumulate


class _TileWriter:
    def __init__(self, sliding: Sliding, asm: Assembler, memories: Sequence[ir.Value]) -> None:
        self._of = sliding
        self._asm = asm
        self._memories = memories

    def accumulate(self, tile: Tile, starts: Starts) -> list[ir.Value]:
        of, asm, origin = self._of, self._asm, tile.origin
        columns, step = of.nest.columns, of.image.vector or 0
        left = asm.add(
            asm.mul(origin.batch, of.image.batch),
            asm.mul(origin.column, columns.stride * of.image.column),
            0 if of.ring else asm.mul(origin.vector, step),
            -columns.padding * of.image.column,
        )

        def every(row: Index, tap: Index, _: Sequence[int], carried: list[ir.Value]) -> list[ir.Value]:
            place = asm.divide(row, of.ring)[1] if of.ring else row
            image = asm.add(left, asm.mul(place, of.image.row))
            return self._kernel_row(tile, tap, image, carried)

        return kernel_rows(asm, of.nest.rows, tile, starts(), every)

    def _kernel_row(self, tile: Tile, tap_row: Index, image: Index, totals: list[ir.Value]) -> list[ir.Value]:
        if not tile.run.segments:
            return totals
        (segment, *others) = tile.run.segments
        taps = segment.end - segment.first
        if others or taps <= _MOST_WRITTEN_OUT:
            return self._written_out(tile, tap_row, image, totals)
        step = self._of.nest.columns.dilation * self._of.image.column

        def every(tap: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = self._asm.add(image, self._asm.mul(tap, step))
            filters = self._filters(tile, tap_row, tap)
            return self._pixels(tile, start, {0: [(pixel, filters) for pixel in segment.pixels]}, carried)

        return self._asm.loop(segment.first, segment.end, 1, totals, every)

    def _written_out(self, tile: Tile, tap_row: Index, image: Index, totals: list[ir.Value]) -> list[ir.Value]:
        """Emit all taps of a kernel row, ordered by the pixel that they read."""
        columns = self._of.nest.columns
        uses: dict[int, list[tuple[int, list[ir.Value | None]]]] = {}
        for segment in tile.run.segments:
            for tap in range(segment.first, segment.end):
                filters = self._filters(tile, tap_row, tap)
                for pixel in segment.pixels:
                    uses.setdefault(pixel * columns.stride + tap * columns.dilation, []).append((pixel, filters))
        return self._pixels(tile, image, dict(sorted(uses.items())), totals, shared=True)

    def _pixels(
        self,
        tile: Tile,
        image: Index,
        uses: dict[int, list[tuple[int, list[ir.Value | None]]]],
        totals: list[ir.Value],
        *,
        shared: bool = False,
    ) -> list[ir.Value]:
        """Combine pixels with the accumulators that use them; unless ``shared``, each use has a pixel of its own."""
        of, asm = self._of, self._asm
        totals = list(totals)
        memory = self._memories[of.image.memory]
        for position, users in uses.items():
            for vector in range(tile.panel.vectors):
                count = tile.panel.count(vector, of.nest.lanes)
                loaded: dict[int, ir.Value] = {}
                for pixel, filters in users:
                    column = position if shared else pixel * of.nest.columns.stride
                    if column not in loaded:
                        offset = asm.add(image, column * of.image.column + vector * (of.image.vector or 0))
                        loaded[column] = asm.load(memory, offset, count)
                    tile_vector = tile.pixel(0, pixel) * tile.panel.vectors + vector
                    totals[tile_vector] = of.combine(asm, loaded[column], filters[vector], totals[tile_vector])
        return totals

    def _filters(self, tile: Tile, tap_row: Index, tap: Index) -> list[ir.Value | None]:
        """The filters of one tap for every vector of the panel."""
        of, asm, taps = self._of, self._asm, self._of.taps
        if taps is None:
            return [None] * tile.panel.vectors
        start = asm.add(asm.mul(tile.origin.vector, taps.vector), asm.mul(tap_row, taps.row), asm.mul(tap, taps.column))
        memory = self._memories[of.filters]
        return [
            asm.load(memory, asm.add(start, index * taps.vector), of.nest.lanes) for index in range(tile.panel.vectors)
        ]

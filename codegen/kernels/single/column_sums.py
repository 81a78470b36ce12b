"""Sums of products with neighbouring pixels in the lanes of a vector, for images that lie in planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.nest import Tile, kernel_rows
from sartor.codegen.kernels.loops.tiles import Segment
from sartor.codegen.kernels.single.plane import PlaneCode
from sartor.codegen.mlir.iree_compiler import ir

# More taps of a kernel row than this are a loop.
_MOST_WRITTEN_OUT = 8


class _Part(NamedTuple):
    """The pixels of a vector of a tile that a tap touches.

    Attributes:
        vector: number of the vector.
        first: first of its lanes.
        pixels: how many.
    """

    vector: int
    first: int
    pixels: int


@dataclass(frozen=True)
class ColumnSums(PlaneCode):
    """A convolution whose filters are packed ``[KH, IC, KW]``."""

    def sums(self, asm: Assembler, memories: Sequence[ir.Value], tile: Tile) -> list[ir.Value]:
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        columns, vectors = self.plane.columns, -(-tile.run.width // asm.lanes)
        left = asm.add(
            asm.mul(tile.origin.batch, self.image.batch),
            asm.mul(tile.origin.column, columns.stride),
            -columns.padding,
        )

        def every(row: Index, tap_row: Index, _: Sequence[int], carried: list[ir.Value]) -> list[ir.Value]:
            image = asm.add(left, asm.mul(row, self.image.row))

            def channel(index: Index, totals: list[ir.Value]) -> list[ir.Value]:
                pixels = asm.add(image, asm.mul(index, self.image.vector or 0))
                filters = asm.mul(asm.add(asm.mul(tap_row, self.depth), index), columns.kernel)
                for segment in tile.run.segments:
                    totals = self._segment(asm, memories, segment, (pixels, filters), totals)
                return totals

            return asm.loop(0, self.depth, 1, carried, channel)

        return kernel_rows(asm, self.plane.rows, tile, [zero] * vectors, every)

    def _segment(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        segment: Segment,
        start: tuple[Index, Index],
        totals: list[ir.Value],
    ) -> list[ir.Value]:
        """Multiply the taps of a segment, given the offsets of the tile's pixels and of the filters of a channel."""
        columns, parts = self.plane.columns, list(_parts(segment, asm.lanes))

        def tap(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            carried = list(carried)
            image = asm.add(start[0], asm.mul(index, columns.dilation))
            filters = asm.broadcast(memories[self.filters], asm.add(start[1], index))
            for part in parts:
                offset = asm.add(image, (part.vector * asm.lanes + part.first) * columns.stride)
                loaded = asm.load_spread(
                    memories[self.image.memory], offset, part.pixels, stride=columns.stride, lane=part.first
                )
                carried[part.vector] = asm.multiply_add(loaded, filters, carried[part.vector])
            return carried

        if segment.end - segment.first > _MOST_WRITTEN_OUT:
            return asm.loop(segment.first, segment.end, 1, totals, tap)
        for index in range(segment.first, segment.end):
            totals = tap(index, totals)
        return totals


def _parts(segment: Segment, lanes: int) -> Iterator[_Part]:
    first, end = segment.pixels[0], segment.pixels[-1] + 1
    for vector in range(first // lanes, -(-end // lanes)):
        low, high = max(first, vector * lanes), min(end, (vector + 1) * lanes)
        yield _Part(vector, low - vector * lanes, high - low)

"""Sums of products with neighbouring pixels in the lanes of a vector, for images that lie in planes.

A vector of pixels is loaded once for all channels of the result.
"""

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
    """A convolution whose filters are packed ``[KH, IC, KW, OC]``."""

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

        return kernel_rows(asm, self.plane.rows, tile, [zero] * (vectors * len(self.planes)), every)

    def _segment(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        segment: Segment,
        start: tuple[Index, Index],
        totals: list[ir.Value],
    ) -> list[ir.Value]:
        """Multiply the taps of a segment, given the offsets of the tile's pixels and of the filters of a channel."""
        columns, parts, channels = self.plane.columns, list(_parts(segment, asm.lanes)), len(self.planes)
        vectors = len(totals) // channels

        def tap(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            carried, loaded = list(carried), dict[_Part, ir.Value]()
            image = asm.add(start[0], asm.mul(index, columns.dilation))
            first = asm.mul(asm.add(start[1], index), channels)
            for channel in range(channels):
                filters = asm.broadcast(memories[self.filters], asm.add(first, channel))
                for part in parts:
                    if part not in loaded:
                        loaded[part] = self._pixels(asm, memories, image, part)
                    number = channel * vectors + part.vector
                    carried[number] = asm.multiply_add(loaded[part], filters, carried[number])
            return carried

        if segment.end - segment.first > _MOST_WRITTEN_OUT:
            return asm.loop(segment.first, segment.end, 1, totals, tap)
        for index in range(segment.first, segment.end):
            totals = tap(index, totals)
        return totals

    def _pixels(self, asm: Assembler, memories: Sequence[ir.Value], image: Index, part: _Part) -> ir.Value:
        """The pixels of a vector that a tap touches, given the offset of what it reads for the tile's first pixel."""
        stride = self.plane.columns.stride
        offset = asm.add(image, (part.vector * asm.lanes + part.first) * stride)
        return asm.load_spread(memories[self.image.memory], offset, part.pixels, stride=stride, lane=part.first)


def _parts(segment: Segment, lanes: int) -> Iterator[_Part]:
    first, end = segment.pixels[0], segment.pixels[-1] + 1
    for vector in range(first // lanes, -(-end // lanes)):
        low, high = max(first, vector * lanes), min(end, (vector + 1) * lanes)
        yield _Part(vector, low - vector * lanes, high - low)

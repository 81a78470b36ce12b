"""Sums of products with input channels in the lanes of a vector, for images whose channels are adjacent.

Each pixel of a tile has an accumulator, whose lanes are added at the end: those of all accumulators at once, by
halving, so that a pixel costs two shuffles and an addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.nest import Tile, kernel_rows
from sartor.codegen.kernels.loops.tiles import Segment
from sartor.codegen.kernels.single.plane import PlaneCode
from sartor.codegen.mlir.iree_compiler import ir, vector

# More vectors of channels than this are a loop.
_MOST_WRITTEN_OUT = 4


@dataclass(frozen=True)
class LaneSums(PlaneCode):
    """A convolution whose filters are packed ``[OC, KH, KW, vectors of input channels, lanes]``, the last one filled up
    with zeros.

    Tiles have one vector of pixels, whose accumulators fill the registers. So channels follow each other.
    """

    def sums(self, asm: Assembler, memories: Sequence[ir.Value], tile: Tile) -> list[ir.Value]:
        taps = self.plane.rows.kernel * self.plane.columns.kernel
        return [self._sums(asm, memories, tile, channel * taps) for channel in range(len(self.planes))]

    def _sums(self, asm: Assembler, memories: Sequence[ir.Value], tile: Tile, first: int) -> ir.Value:
        """The sums of one channel, given the number of its first tap."""
        zero = _zero(asm)
        columns = self.plane.columns
        left = asm.add(
            asm.mul(tile.origin.batch, self.image.batch),
            asm.mul(tile.origin.column, columns.stride * self.image.column),
            -columns.padding * self.image.column,
        )

        def every(row: Index, tap_row: Index, _: Sequence[int], carried: list[ir.Value]) -> list[ir.Value]:
            image = asm.add(left, asm.mul(row, self.image.row))
            tap = asm.add(first, asm.mul(tap_row, columns.kernel))
            for segment in tile.run.segments:
                carried = self._segment(asm, memories, segment, (image, tap), carried)
            return carried

        totals = kernel_rows(asm, self.plane.rows, tile, [zero] * tile.run.width, every)
        return added_lanes(asm, [*totals, *[zero] * (asm.lanes - len(totals))])

    def _segment(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        segment: Segment,
        start: tuple[Index, Index],
        totals: list[ir.Value],
    ) -> list[ir.Value]:
        """Multiply the taps of a segment; ``start`` is the image's offset and the number of the row's first tap."""
        step = self.plane.columns.dilation * self.image.column

        def tap(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            image = asm.add(start[0], asm.mul(index, step))
            filters = asm.mul(asm.add(start[1], index), self._vectors * asm.lanes)
            return self._channels(asm, memories, segment, (image, filters), carried)

        return asm.loop(segment.first, segment.end, 1, totals, tap)

    @property
    def _vectors(self) -> int:
        return -(-self.depth // self.lanes)

    def _channels(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        segment: Segment,
        start: tuple[Index, Index],
        totals: list[ir.Value],
    ) -> list[ir.Value]:
        """Multiply all channels of a tap, given the offsets of its first pixel and of its filters."""
        columns, full = self.plane.columns, self.depth // asm.lanes

        def step(index: Index, carried: list[ir.Value], count: int) -> list[ir.Value]:
            carried = list(carried)
            filters = asm.load(memories[self.filters], asm.add(start[1], asm.mul(index, asm.lanes)), asm.lanes)
            image = asm.add(start[0], asm.mul(index, self.image.vector or 0))
            for pixel in segment.pixels:
                offset = asm.add(image, pixel * columns.stride * self.image.column)
                loaded = asm.load(memories[self.image.memory], offset, count)
                carried[pixel] = asm.multiply_add(loaded, filters, carried[pixel])
            return carried

        if full > _MOST_WRITTEN_OUT:
            totals = asm.loop(0, full, 1, totals, lambda index, carried: step(index, carried, asm.lanes))
        else:
            for index in range(full):
                totals = step(index, totals, asm.lanes)
        rest = self.depth - full * asm.lanes
        return step(full, totals, rest) if rest else totals


class LaneFold:
    """Adds up the lanes of each of as many vectors as there are lanes, as these come: few are held at a time.

    Args:
        asm: emits.
    """

    def __init__(self, asm: Assembler) -> None:
        self._asm = asm
        # What was added up so far, with the lanes that are left of each of its vectors.
        self._held: list[tuple[ir.Value, int]] = []

    def add(self, value: ir.Value) -> None:
        """Take the next vector."""
        length = self._asm.lanes
        while self._held and self._held[-1][1] == length:
            other, _ = self._held.pop()
            value, length = _halved(self._asm, other, value, length), length // 2
        self._held.append((value, length))

    @property
    def sums(self) -> ir.Value:
        """The sums, of each vector in a lane, once all are there."""
        ((value, _),) = self._held
        return value


def added_lanes(asm: Assembler, vectors: Sequence[ir.Value]) -> ir.Value:
    """A vector of the sums of the lanes of each of as many vectors as there are lanes."""
    fold = LaneFold(asm)
    for part in vectors:
        fold.add(part)
    return fold.sums


def _halved(asm: Assembler, one: ir.Value, other: ir.Value, length: int) -> ir.Value:
    """Two vectors as one: of each ``length`` lanes the second half is added to the first."""
    firsts = [start + lane for start in range(0, 2 * asm.lanes, length) for lane in range(length // 2)]
    low = vector.shuffle(one, other, firsts)
    return asm.sum_of(low, vector.shuffle(one, other, [first + length // 2 for first in firsts]))


def _zero(asm: Assembler) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))

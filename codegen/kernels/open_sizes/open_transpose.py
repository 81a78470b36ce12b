"""Transposes of matrices one side of which is known only when they run, as images between both layouts.

A block of places, as many as a vector has elements, is transposed in registers: few channels by one permutation of all
their vectors, more of them by squares, in which pairs of vectors are interleaved as often as halving the number of rows
gives one. The last block begins earlier where blocks do not divide the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.partition import PartitionedKernel, workgroup_range
from sartor.codegen.mlir.iree_compiler import ir, vector

# Vectors that are permuted at once; more do not fit the registers beside what they become.
_FEW = 8


@dataclass(frozen=True)
class OpenTranspose(PartitionedKernel):
    """A kernel that turns ``[N, C, P]`` to ``[N, P, C]``, or back.

    Attributes:
        batch: N.
        places: P.
        channels: C.
        is_to_last: whether channels are last in the result.
        lanes: elements of a vector.
        workgroups: workgroups that partition the places.
    """

    batch: Count
    places: Count
    channels: int
    is_to_last: bool
    lanes: int
    workgroups: int

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        places = asm.size(self.places)
        blocks = asm.divide(asm.add(places, self.lanes - 1), self.lanes)[0]
        first, end = workgroup_range(asm, asm.times(asm.size(self.batch), blocks), self.workgroups, group[0])
        last = asm.sub(places, self.lanes)
        writer = _Writer(self, asm, memories, places)

        def block(number: Index) -> None:
            image, inside = asm.divide(number, blocks)
            begin = asm.times(asm.times(image, places), self.channels)
            asm.branch(
                asm.less(last, 0),
                lambda: asm.repeat(0, places, 1, lambda place: writer.single(begin, place)),
                lambda: writer.block(begin, asm.minimum(asm.mul(inside, self.lanes), last)),
            )

        asm.repeat(first, end, 1, block)


class _Writer:
    def __init__(self, of: OpenTranspose, asm: Assembler, memories: Sequence[ir.Value], places: Index) -> None:
        self._of = of
        self._asm = asm
        self._source, self._target = memories
        self._places = places

    def single(self, begin: Index, place: Index) -> None:
        """Emit the copy of one place of the image from ``begin`` on."""

        def channel(number: Index) -> None:
            plane, pixel = self._plane(begin, place, number), self._pixel(begin, place, number)
            source, target = (plane, pixel) if self._of.is_to_last else (pixel, plane)
            self._asm.copy((self._source, source), (self._target, target), 1)

        self._asm.repeat(0, self._of.channels, 1, channel)

    def block(self, begin: Index, place: Index) -> None:
        """Emit a vector of places from ``place`` on."""
        if self._of.channels <= _FEW:
            self._few(begin, place)
        else:
            self._asm.by_steps(
                self._of.channels, self._of.lanes, lambda first, count: self._square(begin, place, first, count)
            )

    def _few(self, begin: Index, place: Index) -> None:
        """Emit a block of all channels."""
        asm, lanes, count = self._asm, self._of.lanes, self._of.channels
        size, pixels = lanes * count, self._pixel(begin, place, 0)
        if self._of.is_to_last:
            joined = self._load(self._plane(begin, place, 0))
            for channel in range(1, count):
                following = self._load(self._plane(begin, place, channel))
                joined = vector.shuffle(joined, following, [*range((channel + 1) * lanes)])
            order = [channel * lanes + lane for lane in range(lanes) for channel in range(count)]
            asm.store_all(vector.shuffle(joined, joined, order), self._target, pixels, size)
            return
        loaded = asm.load_as_stored(self._source, pixels, size, size=size)
        for channel in range(count):
            plane = vector.shuffle(loaded, loaded, [*range(channel, size, count)])
            asm.store(plane, self._target, self._plane(begin, place, channel), lanes)

    def _square(self, begin: Index, place: Index, first: Index, count: int) -> None:
        """Emit a block of as many channels as a vector has elements, or of the ``count`` last ones."""
        asm, lanes, of = self._asm, self._of.lanes, self._of

        def planes(number: int) -> Index:
            return self._plane(begin, place, asm.add(first, number))

        def pixels(number: int) -> Index:
            return self._pixel(begin, asm.add(place, number), first)

        if of.is_to_last:
            rows = [self._load(planes(number)) for number in range(count)]
            rows += rows[:1] * (lanes - count)
            for number, row in enumerate(self._transposed(rows)):
                asm.store(row, self._target, pixels(number), count)
            return
        rows = [asm.load(self._source, pixels(number), count) for number in range(lanes)]
        for number, row in enumerate(self._transposed(rows)[:count]):
            asm.store(row, self._target, planes(number), lanes)

    def _transposed(self, rows: list[ir.Value]) -> list[ir.Value]:
        """The columns of as many vectors as each has elements: each round interleaves both halves of the rows."""
        lanes = self._of.lanes
        half = lanes // 2
        low = [lane // 2 + lane % 2 * lanes for lane in range(lanes)]
        high = [lane + half for lane in low]
        for _ in range(lanes.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [vector.shuffle(one, other, order) for one, other in pairs for order in (low, high)]
        return rows

    def _load(self, offset: Index) -> ir.Value:
        return self._asm.load(self._source, offset, self._of.lanes)

    def _plane(self, begin: Index, place: Index, channel: Index) -> Index:
        """Offset of an element where channels come first."""
        return self._asm.add(begin, self._asm.times(self._places, channel), place)

    def _pixel(self, begin: Index, place: Index, channel: Index) -> Index:
        """Offset of an element where channels are last."""
        return self._asm.add(begin, self._asm.mul(place, self._of.channels), channel)

"""Depthwise convolutions of 8 bits by pairs of 16-bit numbers: neighbouring pixels of a row, by neighbouring taps.

The rows that the next row of the result reads for the first time become words of 32 bits: the numbers of a pixel and
of the one behind it, minus the image's zero point, for the vectors of a panel. Pixels outside the image are zeros. So
three taps take two products of pairs, where single numbers take three, and sums are those of integers. The words lie
in a ring of rows in the first-level cache; of windows that move by two pixels each is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.word_pairs import WordPairs
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.nest import Accumulate, Nest, Starts, Tile, kernel_rows
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.vector.contraction import FilterStrides
from sartor.codegen.kernels.vector.integer_sums import IntegerSums
from sartor.codegen.kernels.windows.converted_rows import SCRATCH_BYTES
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

GROUP = 2
_HALF_BITS = 16


@dataclass(frozen=True)
class PairedRows:
    """The kernel.

    Attributes:
        nest: loops over tiles, whose columns are windows over words.
        pixels: windows along W over the image.
        image: access to the image.
        filters: position of the filters among the buffers.
        strides: strides of the filters, in bytes.
        multiplier: multiplies pairs.
        meaning: converts sums to real numbers.
    """

    nest: Nest
    pixels: Axis
    image: Access
    filters: int
    strides: FilterStrides
    multiplier: WordPairs
    meaning: IntegerSums

    def check(self) -> None:
        """Check that the kernel can be emitted.

        Raises:
            RejectionError: if a window skips rows, or those that it reads exceed the stack.
        """
        if self.nest.rows.dilation != 1:
            raise RejectionError("the rows that a window reads have to be neighbours")
        if self.ring * self.row * GROUP > SCRATCH_BYTES:
            raise RejectionError("the rows that a window reads exceed the stack")

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.nest.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.nest.lanes

    @property
    def ring(self) -> int:
        """Rows of the ring: a power of two, by which numbers of rows are divided at no cost."""
        return 1 << (self.nest.rows.kernel - 1).bit_length()

    @property
    def word(self) -> int:
        """Elements of a pixel's words."""
        return self.nest.tiling.vectors * self.nest.lanes * GROUP

    @property
    def row(self) -> int:
        """Elements of a row of the ring."""
        return self.nest.columns.input * self.word

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        ring = asm.scratch(self.ring * self.row, ir.IntegerType.get_signless(_HALF_BITS))
        asm.copy_scale(ring, memories[self.image.memory])
        self.nest.write_panels(asm, group, partial(self._panel, asm, [*memories, ring], group))

    def _panel(
        self, asm: Assembler, buffers: Sequence[ir.Value], group: tuple[Index, Index, Index], panel: Panel
    ) -> None:
        axis = self.nest.rows
        first, end = workgroup_range(asm, axis.output, self.nest.groups[0], group[0])
        copy = _Copy(self, asm, buffers, panel, group[2])
        top = asm.add(asm.mul(first, axis.stride), -axis.padding)
        copy.rows(top, asm.add(top, axis.kernel - axis.stride))

        def every(row: Index) -> None:
            last = asm.add(asm.mul(row, axis.stride), axis.kernel - axis.padding)
            copy.rows(asm.add(last, -axis.stride), last)
            self.nest.write_panel(asm, buffers, (row, asm.add(row, 1)), panel, self._sums(asm, buffers), group[2])

        asm.repeat(first, end, 1, every)

    def _sums(self, asm: Assembler, buffers: Sequence[ir.Value]) -> Accumulate:
        memories = buffers[-1], buffers[self.filters]

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            totals = self.meaning.starts(asm, self.nest, memories, tile)
            writer = _TileWriter(self, asm, memories, tile)
            sums = kernel_rows(asm, self.nest.rows, tile, totals, writer.kernel_row)
            return self.meaning.reals(asm, self.nest, memories, tile, sums, starts())

        return accumulate


def paired_columns(pixels: Axis) -> Axis:
    """Windows over words, of which each tap has two pixels: a tap too many has a filter of zeros.

    Raises:
        RejectionError: if neighbouring windows are neither one nor two pixels apart, or taps are not neighbours.
    """
    if pixels.dilation != 1 or pixels.stride not in (1, GROUP):
        raise RejectionError("neighbouring taps and windows have to be neighbours, or windows two pixels apart")
    taps = -(-pixels.kernel // GROUP)
    apart = GROUP // pixels.stride
    return Axis(pixels.output + (taps - 1) * apart, pixels.output, taps, 1, apart, 0)


class _TileWriter:
    """Emits the products of a tile."""

    def __init__(self, of: PairedRows, asm: Assembler, memories: tuple[ir.Value, ir.Value], tile: Tile) -> None:
        self._of, self._asm, self._tile = of, asm, tile
        self._ring, self._filters = memories
        self._left = asm.mul(tile.origin.column, of.word)
        self._panel = asm.mul(tile.panel.index, of.strides.panel)

    def kernel_row(self, row: Index, tap: Index, _: Sequence[int], carried: list[ir.Value]) -> list[ir.Value]:
        """Add the products of a kernel row, ordered by the words that they read."""
        of, asm, tile = self._of, self._asm, self._tile
        totals, columns = list(carried), of.nest.columns
        image = asm.add(self._left, asm.mul(asm.divide(row, of.ring)[1], of.row))
        filters = asm.add(self._panel, asm.mul(tap, of.strides.row))
        for index in range(tile.panel.vectors):
            begins = [number * of.strides.depth + index * of.strides.vector for number in range(columns.kernel)]
            taps = [of.multiplier.load(asm, self._filters, asm.add(filters, begin), of.lanes) for begin in begins]
            for place in range(tile.run.width + (columns.kernel - 1) * columns.dilation):
                users = [(side, place - side * columns.dilation) for side in range(columns.kernel)]
                users = [(side, pixel) for side, pixel in users if 0 <= pixel < tile.run.width]
                if not users:
                    continue
                words = self._words(asm.add(image, place * of.word + index * of.lanes * GROUP))
                for side, pixel in users:
                    number = tile.pixel(0, pixel) * tile.panel.vectors + index
                    totals[number] = of.multiplier.multiplied(asm, words, taps[side], totals[number])
        return totals

    def _words(self, offset: Index) -> ir.Value:
        kind = ir.VectorType.get([self._of.lanes * GROUP], ir.IntegerType.get_signless(_HALF_BITS))
        return vector.load(kind, self._ring, [self._asm.value(offset)])


@dataclass(frozen=True)
class _Copy:
    """Writes the words of rows of a panel."""

    of: PairedRows
    asm: Assembler
    buffers: Sequence[ir.Value]
    panel: Panel
    batch: Index

    def rows(self, first: Index, end: Index) -> None:
        """Write those of a range of rows that the image has."""
        asm, axis = self.asm, self.of.nest.rows
        asm.repeat(asm.maximum(first, 0), asm.minimum(end, axis.input), 1, self._row)

    def _row(self, row: Index) -> None:
        asm, of, image = self.asm, self.of, self.of.image
        vector_number = asm.mul(self.panel.index, of.nest.tiling.vectors)
        begin = asm.add(
            asm.mul(self.batch, image.batch),
            asm.mul(row, image.row),
            asm.mul(vector_number, image.vector or 0),
            image.base,
        )
        into = asm.mul(asm.divide(row, of.ring)[1], of.row)
        inside = [number for number in range(of.nest.columns.input) if all(self._present(number))]
        whole = range(inside[0], inside[-1] + 1) if inside else range(0)
        for number in sorted(set(range(of.nest.columns.input)) - set(whole)):
            self._word(begin, into, number, self._present(number))
        asm.repeat(whole.start, whole.stop, 1, lambda number: self._word(begin, into, number, (True, True)))

    def _present(self, number: int) -> tuple[bool, bool]:
        """Whether the image has the two pixels of a word."""
        pixels = self.of.pixels
        first = number * pixels.stride - pixels.padding
        return 0 <= first < pixels.input, 0 <= first + 1 < pixels.input

    def _word(self, begin: Index, into: Index, number: Index, present: tuple[bool, bool]) -> None:
        """Write the words of a pixel and the one behind it, of all vectors."""
        asm, of, image = self.asm, self.of, self.of.image
        pixel = asm.add(asm.mul(number, of.pixels.stride), -of.pixels.padding)
        start, place = asm.add(begin, asm.mul(pixel, image.column)), asm.add(into, asm.mul(number, of.word))
        for index in range(self.panel.vectors):
            count = self.panel.count(index, of.lanes)
            offset = asm.add(start, index * (image.vector or 0))
            pair = [
                self._numbers(asm.add(offset, side * image.column), count) if there else self._zeros()
                for side, there in enumerate(present)
            ]
            stored = self._centred(*pair)
            vector.store(stored, self.buffers[-1], [asm.value(asm.add(place, index * of.lanes * GROUP))])

    def _numbers(self, offset: Index, count: int) -> ir.Value:
        return self.asm.load_as_stored(self.buffers[self.of.image.memory], offset, count)

    def _zeros(self) -> ir.Value:
        number = self.asm.scale_of(self.buffers[self.of.image.memory]).number
        return vector.broadcast(ir.VectorType.get([self.of.lanes], number.type), number)

    def _centred(self, first: ir.Value, second: ir.Value) -> ir.Value:
        """The numbers of two pixels side by side, minus the zero point."""
        lanes, half = self.of.lanes, ir.IntegerType.get_signless(_HALF_BITS)
        order = [channel + side * lanes for channel in range(lanes) for side in range(GROUP)]
        kind = ir.VectorType.get([lanes * GROUP], half)
        zero = arith.extsi(half, self.asm.scale_of(self.buffers[self.of.image.memory]).number)
        numbers = arith.extsi(kind, vector.shuffle(first, second, order))
        return arith.subi(numbers, vector.broadcast(kind, zero))

"""Copies of the rows of an image that a strip of the result reads: 8 bits become 16, minus the image's zero point."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_GROUP = 2
_BITS = 16


@dataclass(frozen=True)
class WidenedRows:
    """Rows of an image, channels last, of an even number of channels: one is added, which is zero, if there are fewer.

    Attributes:
        rows: windows along H.
        width: pixels of a row.
        channels: channels of the image.
        image: strides of the image.
    """

    rows: Axis
    width: int
    channels: int
    image: ImageStrides

    @property
    def depth(self) -> int:
        """Channels of a copied pixel."""
        return self.channels + self.channels % _GROUP

    @property
    def row(self) -> int:
        """Elements of a copied row."""
        return self.width * self.depth

    @property
    def strides(self) -> ImageStrides:
        """Strides of the copies."""
        return ImageStrides(0, self.row, self.depth, self.depth, self.depth)

    def most(self, band: int) -> int:
        """Most rows of the image that ``band`` rows of the result read."""
        reach = (self.rows.kernel - 1) * self.rows.dilation
        return min((band - 1) * self.rows.stride + reach + 1, self.rows.input)

    def read(self, asm: Assembler, first: Index, end: Index) -> tuple[Index, Index]:
        """First row of the image that rows ``first`` to ``end`` of the result read, and the end of them."""
        rows, reach = self.rows, (self.rows.kernel - 1) * self.rows.dilation
        top = asm.maximum(asm.add(asm.mul(first, rows.stride), -rows.padding), 0)
        last = asm.add(asm.mul(end, rows.stride), reach + 1 - rows.stride - rows.padding)
        return top, asm.minimum(last, rows.input)

    def write(
        self,
        asm: Assembler,
        memories: tuple[ir.Value, ir.Value],
        starts: tuple[Index, Index],
        rows: tuple[Index, Index],
    ) -> None:
        """Emit the copy.

        Args:
            asm: emits the code.
            memories: the images, and what the copies are written to.
            starts: offsets of the first row of the image and of the first copy.
            rows: first row to copy, and the end.
        """
        source, target = memories
        copy = _Copy(asm, source, target)

        def every(row: Index) -> None:
            begin = asm.add(starts[0], asm.mul(row, self.image.row))
            into = asm.add(starts[1], asm.mul(asm.sub(row, rows[0]), self.row))
            self._row(copy, begin, into)

        asm.repeat(*rows, 1, every)

    def _row(self, copy: _Copy, begin: Index, into: Index) -> None:
        """Copy one row."""
        if self.depth == self.channels:
            copy.run(begin, into, self.row)
        else:
            copy.asm.repeat(0, self.width, 1, lambda pixel: self._pixel(copy, begin, into, pixel))

    def _pixel(self, copy: _Copy, begin: Index, into: Index, pixel: Index) -> None:
        """Copy one pixel, and add a channel."""
        asm = copy.asm
        start = asm.add(into, asm.mul(pixel, self.depth))
        copy.run(asm.add(begin, asm.mul(pixel, self.image.column)), start, self.channels)
        copy.zero(asm.add(start, self.channels))


@dataclass(frozen=True)
class AdjoiningRows(WidenedRows):
    """Rows whose pixels adjoin, with their padding, so that the taps of a kernel row are one sequence of numbers.

    A number of an odd one's last pair is that of another pixel, or arbitrary; its filter is zero.

    Attributes:
        columns: windows along W.
    """

    columns: Axis

    @property
    def depth(self) -> int:
        """Numbers that the taps of a kernel row read."""
        numbers = self.columns.kernel * self.channels
        return numbers + numbers % _GROUP

    @property
    def row(self) -> int:
        rest = self.columns.kernel * self.channels % _GROUP
        return (self.columns.padding + self.width + self._after) * self.channels + rest

    @property
    def strides(self) -> ImageStrides:
        return ImageStrides(0, self.row, self.channels, self.depth, self.depth)

    @property
    def windows(self) -> Axis:
        """Windows along W over the copied rows, of which all taps are one."""
        columns = self.columns
        return Axis(columns.padding + self.width + self._after, columns.output, 1, columns.stride, 1, 0)

    @property
    def _after(self) -> int:
        """Pixels of padding behind a row."""
        return max(0, self.columns.pixel(self.columns.output - 1, self.columns.kernel - 1) + 1 - self.width)

    def _row(self, copy: _Copy, begin: Index, into: Index) -> None:
        asm, before = copy.asm, self.columns.padding * self.channels
        copy.zeros(into, before)
        first = asm.add(into, before)
        copy.run(begin, first, self.width * self.channels)
        copy.zeros(asm.add(first, self.width * self.channels), self._after * self.channels)


class _Copy:
    """Copies adjacent elements in vectors, the last of which may overlap the one before it."""

    def __init__(self, asm: Assembler, source: ir.Value, target: ir.Value) -> None:
        self.asm = asm
        self._source, self._target = source, target
        self._lanes = _GROUP * asm.lanes
        self._half = ir.IntegerType.get_signless(_BITS)
        self._zero = arith.extsi(self._half, asm.scale_of(source).number)

    def run(self, begin: Index, into: Index, count: int) -> None:
        """Copy ``count`` elements from ``begin`` of the source to ``into`` of the target."""
        asm, lanes = self.asm, self._lanes
        while lanes > count:
            lanes //= 2
        whole = count - count % lanes
        asm.repeat(0, whole, lanes, lambda at: self._vector(asm.add(begin, at), asm.add(into, at), lanes))
        if whole < count:
            rest = count - lanes
            self._vector(asm.add(begin, rest), asm.add(into, rest), lanes)

    def zeros(self, into: Index, count: int) -> None:
        """Write zeros."""
        self.asm.repeat(0, count, 1, lambda at: self.zero(self.asm.add(into, at)))

    def zero(self, into: Index) -> None:
        """Write a zero."""
        kind = ir.VectorType.get([1], self._half)
        zeros = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(self._half, 0)))
        vector.store(zeros, self._target, [self.asm.value(into)])

    def _vector(self, begin: Index, into: Index, lanes: int) -> None:
        stored = vector.load(
            ir.VectorType.get([lanes], ir.MemRefType(self._source.type).element_type),
            self._source,
            [self.asm.value(begin)],
        )
        kind = ir.VectorType.get([lanes], self._half)
        numbers = arith.subi(arith.extsi(kind, stored), vector.broadcast(kind, self._zero))
        vector.store(numbers, self._target, [self.asm.value(into)])

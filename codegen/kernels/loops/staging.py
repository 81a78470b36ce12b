"""Copies of the rows that a workgroup reads: padded with zeros, rounded, and rearranged for strided windows.

AMX loads the rows of a tile at a constant distance. So padding has to be in memory, and with a stride of several pixels
those that are a stride apart have to be adjacent: an image row becomes ``phases`` rows of such pixels. If there are few
channels, rows are not split, and all that a window reads of a row is one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.mlir.iree_compiler import ir, vector

# Elements that a tile may read beyond the last run.
_BEYOND = 64


@dataclass(frozen=True)
class Staging:
    """How rows of an image are copied, to ``[row, phase, pixel, channel]``.

    Attributes:
        rows: windows along H.
        columns: windows along W.
        image: strides of the image, channels last.
        channels: channels of the image.
        depth: channels of a copied pixel; those that the image lacks are zero.
        most: most rows of the image that are copied at once.
        is_whole: whether rows are not split into phases.
    """

    rows: Axis
    columns: Axis
    image: ImageStrides
    channels: int
    depth: int
    most: int
    is_whole: bool

    @property
    def stride(self) -> int:
        """Distance in pixels of those that become adjacent."""
        return 1 if self.is_whole else self.columns.stride

    @property
    def pixel(self) -> int:
        """Distance in elements between the first pixels of neighbouring windows."""
        return self.columns.stride // self.stride * self.depth

    @property
    def phases(self) -> int:
        """Rows that a row of the image becomes."""
        return min(self.stride, self._reach + 1)

    @property
    def _reach(self) -> int:
        """Distance in pixels of a window's last tap from its first."""
        return (self.columns.kernel - 1) * self.columns.dilation

    @property
    def pixels(self) -> int:
        """Pixels of a row of one phase."""
        return (self.columns.output - 1) * self.columns.stride // self.stride + self._reach // self.stride + 1

    @property
    def row(self) -> int:
        """Elements of a row in all phases."""
        return self.phases * self.pixels * self.depth

    @property
    def elements(self) -> int:
        """Elements of all rows that are copied at once, and of zeros after them: tiles may read beyond the last run."""
        return self.most * self.row + _BEYOND

    def tap(self, column: int) -> int:
        """Offset in elements of the pixel that a tap reads, relative to the window's first pixel."""
        pixel, phase = divmod(column * self.columns.dilation, self.stride)
        return (phase * self.pixels + pixel) * self.depth

    def write(
        self,
        asm: Assembler,
        source: ir.Value,
        batch: Index,
        target: ir.Value,
        start: Index,
        rows: tuple[Index, Index],
    ) -> None:
        """Emit the copy.

        Args:
            asm: emits the code.
            source: the images.
            batch: index of the image.
            target: memory for the copies.
            start: offset of the first copy in ``target``.
            rows: first row to copy, which may lie outside the image, and the number of rows.
        """

        # A copy in another type holds real numbers, so its padding is zero whatever the zero point of the image.
        same = ir.MemRefType(source.type).element_type == ir.MemRefType(target.type).element_type
        nothing = asm.zero_of(source if same else target)

        def every(number: Index) -> None:
            row, into = asm.add(rows[0], number), asm.add(start, asm.mul(number, self.row))
            image = asm.add(asm.mul(batch, self.image.batch), asm.mul(row, self.image.row))
            inside = asm.within(row, self.rows.input)
            asm.branch(
                inside,
                lambda: self._row(asm, (source, image), (target, into), nothing),
                lambda: asm.fill(nothing, target, into, self.row),
            )

        asm.repeat(0, rows[1], 1, every)
        asm.fill(nothing, target, asm.add(start, asm.mul(rows[1], self.row)), _BEYOND)

    def _row(
        self,
        asm: Assembler,
        source: tuple[ir.Value, Index],
        target: tuple[ir.Value, Index],
        nothing: ir.Value,
    ) -> None:
        for phase in range(self.phases):
            begin = asm.add(target[1], phase * self.pixels * self.depth)
            first, end = self._present(phase)
            asm.fill(nothing, target[0], begin, first * self.depth)
            column = first * self.stride + phase - self.columns.padding
            read = asm.add(source[1], column * self.image.column)
            copy = self._planes if self.image.block < min(self.channels, 2) else self._pixels
            copy(asm, (source[0], read), (target[0], asm.add(begin, first * self.depth)), end - first)
            asm.fill(nothing, target[0], asm.add(begin, end * self.depth), (self.pixels - end) * self.depth)

    def _present(self, phase: int) -> tuple[int, int]:
        """First and end of a phase's pixels that lie in the image."""
        there = [
            pixel
            for pixel in range(self.pixels)
            if 0 <= pixel * self.stride + phase - self.columns.padding < self.columns.input
        ]
        return (there[0], there[-1] + 1) if there else (0, 0)

    def _pixels(
        self, asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int
    ) -> None:
        """Copy pixels that are ``stride`` apart."""
        step = self.stride * self.image.column
        if step == self.depth == self.channels:
            _copy(asm, source, target, count * self.channels, count * self.channels)
            return

        def every(pixel: Index) -> None:
            read, into = asm.add(source[1], asm.mul(pixel, step)), asm.add(target[1], asm.mul(pixel, self.depth))
            _copy(asm, (source[0], read), (target[0], into), self.channels, self.depth)

        asm.repeat(0, count, 1, every)

    def _planes(
        self, asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int
    ) -> None:
        """Copy adjacent pixels whose channels are in planes, by interleaving vectors of each plane."""
        element = ir.MemRefType(target[0].type).element_type

        def every(start: Index, present: int) -> None:
            planes = [
                asm.rounded(asm.load(source[0], asm.add(source[1], start, plane * self.image.blocks), present), element)
                for plane in range(self.channels)
            ]
            zero = asm.splat(ir.FloatAttr.get(element, 0.0))
            vectors = interleaved([*planes, *[zero] * (self.depth - self.channels)])
            into = asm.add(target[1], asm.mul(start, self.depth))
            asm.store_all(vectors, target[0], into, present * self.depth)

        asm.by_steps(count, asm.lanes, every)


def interleaved(vectors: Sequence[ir.Value]) -> ir.Value:
    """A vector of the first elements of all vectors, then the second ones, and so on; there are 1, 2, 4, … vectors."""
    if len(vectors) == 1:
        return vectors[0]
    return vector.interleave(interleaved(vectors[::2]), interleaved(vectors[1::2]))


def _copy(
    asm: Assembler,
    source: tuple[ir.Value, Index],
    target: tuple[ir.Value, Index],
    count: int,
    filled: int,
) -> None:
    """Copy ``count`` elements, rounded if the types differ, then zeros up to ``filled`` elements."""
    kinds = [ir.MemRefType(memory.type).element_type for memory, _ in (source, target)]
    if kinds[0] == kinds[1]:
        asm.copy(source, target, count)
    else:
        _round(asm, source, target, count)
    asm.fill(asm.zero_of(target[0]), target[0], asm.add(target[1], count), filled - count)


def _round(asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int) -> None:
    def every(offset: Index, present: int) -> None:
        value = asm.load(source[0], asm.add(source[1], offset), present)
        asm.store(value, target[0], asm.add(target[1], offset), present)

    asm.by_steps(count, asm.lanes, every)


def most_rows(rows: Axis, lines: int) -> int:
    """Rows of the image that ``lines`` rows of the result read."""
    return (lines - 1) * rows.stride + (rows.kernel - 1) * rows.dilation + 1

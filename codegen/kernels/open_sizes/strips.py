"""Lines of images of any size that the windows of a part of a line read, copied with zeros beyond the borders.

Windows of one line overlap: what they read lies once in such a strip, and patches would repeat it. A multiply-add
repeats single numbers of it, so channels need not be adjacent, and an image may stay in ONNX's layout.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.open_sizes.patches import Patches
from sartor.codegen.mlir.iree_compiler import ir, vector


@dataclass(frozen=True)
class Strips:
    """What the windows of at most ``places`` places of a line of the result read.

    Attributes:
        windows: of the image.
        in_planes: whether the image is in ONNX's layout, ``[N, C, H, W]``, rather than ``[N, H, W, C]``.
        places: most places.
        lanes: elements of a vector.
    """

    windows: Patches
    in_planes: bool
    places: int
    lanes: int

    @property
    def unit(self) -> int:
        """Adjacent channels of a pixel."""
        return 1 if self.in_planes else self.windows.channels

    @property
    def _planes(self) -> int:
        """Runs of channels that each have lines of their own."""
        return self.windows.channels // self.unit

    @property
    def line(self) -> int:
        """Elements from a line of the strip to the next."""
        return pixels_of(self.windows, self.places) * self.unit

    @property
    def elements(self) -> int:
        """Elements of a strip, behind which whole vectors are written."""
        return self._planes * self.windows.rows.kernel * self.line + self.lanes

    @property
    def strides(self) -> ImageStrides:
        """Strides of a strip as an image, each of whose rows is an element: lines are a window's dilation apart."""
        plane = self.windows.rows.kernel * self.line
        return ImageStrides(0, 1, self.unit, self.unit, plane if self.in_planes else self.unit)

    @property
    def rows(self) -> Axis:
        """Lines that a window reads, where a place is a row of the result."""
        columns, lines = self.windows.columns, self.windows.rows.kernel
        return Axis((lines - 1) * self.line + 1, 1, lines, columns.stride * self.unit, self.line, 0)

    @property
    def columns(self) -> Axis:
        """Windows of one place."""
        columns = self.windows.columns
        return Axis(pixels_of(self.windows, 1), 1, columns.kernel, columns.stride, columns.dilation, 0)

    def fill(
        self, asm: Assembler, memories: tuple[ir.Value, ir.Value], line: Index, places: tuple[Index, Index]
    ) -> None:
        """Emit code that copies what some windows read.

        Args:
            asm: emits the code.
            memories: the image, and the strip.
            line: the line of the result, among those of all images.
            places: the first place in that line, and how many there are.
        """
        rows, columns = self.windows.rows, self.windows.columns
        batch, row = asm.divide(line, asm.size(rows.output))
        top, left = rows.start(asm, row), columns.start(asm, places[0])
        reach = (columns.kernel - 1) * columns.dilation + 1 - columns.stride
        end = asm.mul(asm.add(asm.mul(places[1], columns.stride), reach), self.unit)
        before, inside = 0, end
        if columns.is_padded:
            width = asm.size(columns.input)
            before = asm.minimum(end, asm.mul(asm.maximum(0, asm.sub(0, left)), self.unit))
            inside = asm.maximum(before, asm.minimum(end, asm.mul(asm.sub(width, left), self.unit)))
        part = _Part(end, before, inside)

        def copy(plane: Index, tap: Index) -> None:
            y = asm.add(top, asm.mul(tap, rows.dilation))
            begin = asm.add(asm.mul(plane, rows.kernel * self.line), asm.mul(tap, self.line))
            at = asm.add(asm.times(asm.add(asm.mul(batch, self._planes), plane), asm.size(rows.input)), y)
            source = asm.mul(asm.add(asm.times(at, asm.size(columns.input)), left), self.unit)
            asm.branch(
                rows.hits(asm, y),
                lambda: self._line(asm, memories, (source, begin), part),
                lambda: self._zeros(asm, memories[1], begin, (0, end)),
            )

        # A line may be written beyond its end, where the next one begins.
        asm.repeat(0, self._planes, 1, lambda plane: asm.repeat(0, rows.kernel, 1, functools.partial(copy, plane)))

    def _line(self, asm: Assembler, memories: Sequence[ir.Value], offsets: tuple[Index, Index], part: _Part) -> None:
        """Emit a line of the strip that is one of the image, given where both begin."""
        (image, strip), (source, target) = memories, offsets
        self._zeros(asm, strip, target, (0, part.before))
        count = asm.sub(part.inside, part.before)
        whole = asm.sub(count, asm.divide(count, self.lanes)[1])

        def copy(index: Index, size: Index) -> None:
            at = asm.add(part.before, index)
            loaded = asm.load(image, asm.add(source, at), size)
            vector.store(loaded, strip, [asm.value(asm.add(target, at))])

        asm.repeat(0, whole, self.lanes, lambda index: copy(index, self.lanes))
        asm.when(asm.less(whole, count), lambda: copy(whole, asm.sub(count, whole)))
        self._zeros(asm, strip, target, (part.inside, part.end))

    def _zeros(self, asm: Assembler, strip: ir.Value, begin: Index, run: tuple[Index, Index]) -> None:
        """Emit zeros from the first to the end of a run, counted from ``begin``, and of a vector's rest."""
        zeros = vector.broadcast(asm.vector_type(ir.F32Type.get()), asm.zero_of(strip))
        asm.repeat(*run, self.lanes, lambda at: vector.store(zeros, strip, [asm.value(asm.add(begin, at))]))


@dataclass(frozen=True)
class _Part:
    """The elements of a line of a strip: zeros up to ``before``, the image's up to ``inside``, zeros up to ``end``."""

    end: Index
    before: Index
    inside: Index


def pixels_of(windows: Patches, places: int) -> int:
    """Pixels of a line that the windows of adjacent places read."""
    columns = windows.columns
    return (places - 1) * columns.stride + (columns.kernel - 1) * columns.dilation + 1

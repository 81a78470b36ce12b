"""Windows over each channel of images of any size: depthwise convolutions and poolings, on vectors of channels.

Register tiles of neighbouring places of a row share what they read. The last of a row begins earlier where its places
do not divide, so that some are computed twice. Places at the borders, whose windows reach beyond the image, are
computed one by one from the taps that lie on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.nest import each_panel
from sartor.codegen.kernels.loops.panels import Panel, PanelGrid
from sartor.codegen.kernels.loops.partition import PartitionedKernel, workgroup_range
from sartor.codegen.kernels.open_sizes.window_form import WindowForm
from sartor.codegen.mlir.iree_compiler import ir

# Elements of an image that stay in the first-level cache.
_CACHED = (32 << 10) // 4


@dataclass(frozen=True)
class OpenWindow(PartitionedKernel):
    """A kernel of windows.

    Attributes:
        form: what it computes.
        batch: N.
        image: position of the image among the kernel's buffers.
        wiring: those of the layer among them, which the image follows where patches are read.
        columns: places of a register tile.
        vectors: vectors of channels of a register tile.
        lanes: elements of a vector.
        workgroups: workgroups that partition the rows of the result.
    """

    form: WindowForm
    batch: Count
    image: int
    wiring: tuple[int, ...]
    columns: int
    vectors: int
    lanes: int
    workgroups: int

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        lines = asm.times(asm.size(self.batch), asm.size(self.form.windows.rows.output))
        first, end = workgroup_range(asm, lines, self.workgroups, group[0])
        width = asm.size(self.form.windows.columns.output)
        writer = self._writer(asm, memories)
        asm.repeat(first, end, 1, lambda number: self._line(asm, writer, number, (0, width)))

    @property
    def depth(self) -> int:
        """Elements of a place of the result."""
        return self.form.windows.channels

    def fill(self, asm: Assembler, memories: Sequence[ir.Value], places: tuple[Index, Index]) -> None:
        """Emit code for some places; see ``MadeRows``."""
        first, count = places
        width, end = asm.size(self.form.windows.columns.output), asm.add(first, count)
        writer = self._writer(asm, memories, asm.sub(0, asm.mul(first, self.depth)))

        def line(number: Index) -> None:
            start = asm.times(number, width)
            begin, stop = asm.maximum(0, asm.sub(first, start)), asm.minimum(width, asm.sub(end, start))
            self._line(asm, writer, number, (begin, stop))

        last = asm.divide(asm.add(end, asm.sub(width, 1)), width)[0]
        asm.repeat(asm.divide(first, width)[0], last, 1, line)

    def _writer(self, asm: Assembler, memories: Sequence[ir.Value], shift: Index = 0) -> _Writer:
        buffers = [*memories, memories[self.image]]
        return _Writer(self, asm, [buffers[index] for index in self.wiring], shift)

    def _line(self, asm: Assembler, writer: _Writer, number: Index, columns: tuple[Index, Index]) -> None:
        """Emit the code of some columns of a row."""
        grid = PanelGrid(self.form.windows.channels, self.lanes, self.vectors)
        first, end = columns

        def block(begin: Index) -> None:
            places = begin, asm.minimum(asm.add(begin, self._block), end)
            each_panel(asm, grid, (0, grid.panels), True, lambda panel: writer.line(panel, number, places))

        asm.repeat(first, end, self._block, block)

    @property
    def _block(self) -> int:
        """Columns of which all channels are computed before the next: as many as the first-level cache has pixels for,
        so that memory is read front to back."""
        windows = self.form.windows
        row = windows.channels * windows.columns.stride * windows.rows.kernel
        return max(1, _CACHED // (row * self.columns)) * self.columns


@dataclass(frozen=True)
class _Line:
    """A row of the result, while its code is emitted.

    Attributes:
        panel: its channels.
        number: of the row among those of all images.
        start: offset of the image row that the first tap of its windows reads, before any padding.
        taps: first and end of the rows of taps that lie on the image.
    """

    panel: Panel
    number: Index
    start: Index
    taps: tuple[Index, Index]


class _Writer:
    """Emits rows of the result, whose places lie ``shift`` elements after where their numbers say."""

    def __init__(self, of: OpenWindow, asm: Assembler, memories: Sequence[ir.Value], shift: Index) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._shift = shift
        self._image = memories[of.form.image]
        windows = of.form.windows
        self._rows, self._columns, self._channels = windows.rows, windows.columns, windows.channels

    def line(self, panel: Panel, number: Index, places: tuple[Index, Index]) -> None:
        """Emit the code of some columns, given by the first and their end, of a row of a panel."""
        asm, columns = self._asm, self._of.columns
        batch, row = asm.divide(number, asm.size(self._rows.output))
        top = self._rows.start(asm, row)
        height = asm.add(asm.times(batch, asm.size(self._rows.input)), top)
        start = asm.times(asm.times(height, asm.size(self._columns.input)), self._channels)
        line = _Line(panel, number, start, self._rows.taps(asm, top))
        begin, stop = places
        inner, outer = self._columns.inner(asm)
        first = asm.minimum(asm.maximum(begin, inner), stop)
        end = asm.minimum(outer, stop)
        end = asm.chosen(asm.less(columns - 1, asm.sub(end, first)), end, first)
        last = asm.sub(end, columns)
        asm.repeat(first, end, columns, lambda column: self._inner(line, asm.minimum(column, last)))
        before = asm.sub(first, begin)
        outside = asm.add(before, asm.sub(stop, end))

        def single(index: Index) -> None:
            behind = asm.add(asm.sub(index, before), end)
            self._single(line, asm.chosen(asm.less(index, before), asm.add(begin, index), behind))

        asm.repeat(0, outside, 1, single)

    def _inner(self, line: _Line, column: Index) -> None:
        """Emit a register tile of windows that lie on the image in their whole width."""
        asm, side = self._asm, self._columns
        left = asm.add(line.start, asm.mul(side.start(asm, column), self._channels))
        uses: dict[int, list[tuple[int, int]]] = {}
        for tap in range(side.kernel):
            for pixel in range(self._of.columns):
                uses.setdefault(pixel * side.stride + tap * side.dilation, []).append((pixel, tap))

        def row(number: Index, totals: list[ir.Value]) -> list[ir.Value]:
            totals, image = list(totals), self._image_row(left, number)
            for vector in range(line.panel.vectors):
                filters = [self._filter(line, number, tap, vector) for tap in range(side.kernel)]
                for position in sorted(uses):
                    pixel = self._pixel(line, asm.add(image, position * self._channels), vector)
                    for place, tap in uses[position]:
                        index = place * line.panel.vectors + vector
                        totals[index] = self._of.form.combine(asm, pixel, filters[tap], totals[index])
            return totals

        self._tile(line, column, self._of.columns, lambda totals: asm.loop(*line.taps, 1, totals, row))

    def _single(self, line: _Line, column: Index) -> None:
        """Emit a place whose window may reach beyond the image."""
        asm, side = self._asm, self._columns
        start = side.start(asm, column)
        first, end = side.taps(asm, start)
        left = asm.add(line.start, asm.mul(start, self._channels))

        def row(number: Index, totals: list[ir.Value]) -> list[ir.Value]:
            image = self._image_row(left, number)

            def tap(tap: Index, totals: list[ir.Value]) -> list[ir.Value]:
                at = asm.add(image, asm.mul(tap, side.dilation * self._channels))
                return [
                    self._of.form.combine(
                        asm, self._pixel(line, at, vector), self._filter(line, number, tap, vector), total
                    )
                    for vector, total in enumerate(totals)
                ]

            return asm.loop(first, end, 1, totals, tap)

        self._tile(line, column, 1, lambda totals: asm.loop(*line.taps, 1, totals, row))

    def _tile(
        self, line: _Line, column: Index, width: int, accumulate: Callable[[list[ir.Value]], list[ir.Value]]
    ) -> None:
        """Emit the start, the sums and the results of some neighbouring places."""
        asm, form, panel = self._asm, self._of.form, line.panel
        place = asm.add(asm.times(line.number, asm.size(self._columns.output)), column)
        origin = TileOrigin(0, 0, place, asm.mul(panel.index, self._of.vectors))
        parts = [
            TileVector(0, pixel, vector, panel.count(vector, self._of.lanes))
            for pixel in range(width)
            for vector in range(panel.vectors)
        ]
        totals = accumulate([form.epilogue.start(asm, self._memories, origin, part) for part in parts])
        for part, total in zip(parts, totals, strict=True):
            value = form.epilogue.finish(asm, self._memories, origin, part, total)
            offset = asm.add(origin.offset(asm, form.result, part), self._shift)
            asm.store(value, self._memories[form.result.memory], offset, part.channels)

    def _image_row(self, start: Index, tap: Index) -> Index:
        """Offset of what a row of taps reads first."""
        asm = self._asm
        line = asm.times(asm.size(self._columns.input), self._channels)
        return asm.add(start, asm.times(asm.mul(tap, self._rows.dilation), line))

    def _pixel(self, line: _Line, offset: Index, vector: int) -> ir.Value:
        asm, channel = self._asm, self._channel(line.panel, vector)
        return asm.load(self._image, asm.add(offset, channel), line.panel.count(vector, self._of.lanes))

    def _filter(self, line: _Line, row: Index, column: Index, vector: int) -> ir.Value | None:
        asm, filters = self._asm, self._of.form.filters
        if filters is None:
            return None
        tap = asm.add(asm.mul(row, self._columns.kernel), column)
        offset = asm.add(asm.mul(tap, self._channels), self._channel(line.panel, vector))
        return asm.load(self._memories[filters], offset, line.panel.count(vector, self._of.lanes))

    def _channel(self, panel: Panel, vector: int) -> Index:
        """The first channel of a vector."""
        return self._asm.add(self._asm.mul(panel.index, self._of.vectors * self._of.lanes), vector * self._of.lanes)

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
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.open_sizes.window_form import WindowForm
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class OpenWindow:
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

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.workgroups, 1, 1

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        buffers = [*memories, memories[self.image]]
        writer = _Writer(self, asm, [buffers[each] for each in self.wiring])
        lines = asm.times(asm.size(self.batch), asm.size(self.form.windows.rows.output))
        first, end = workgroup_range(asm, lines, self.workgroups, group[0])
        grid = PanelGrid(self.form.windows.channels, self.lanes, self.vectors)

        def line(number: Index) -> None:
            # All channels of a row are read while its pixels' lines are in the cache.
            each_panel(asm, grid, (0, grid.panels), True, lambda panel: writer.line(panel, number))

        asm.repeat(first, end, 1, line)


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
    def __init__(self, of: OpenWindow, asm: Assembler, memories: Sequence[ir.Value]) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._image = memories[of.form.image]
        windows = of.form.windows
        self._rows, self._columns, self._channels = windows.rows, windows.columns, windows.channels

    def line(self, panel: Panel, number: Index) -> None:
        """Emit the code of a row of a panel."""
        asm, columns = self._asm, self._of.columns
        batch, row = asm.divide(number, asm.size(self._rows.output))
        top = self._rows.start(asm, row)
        height = asm.add(asm.times(batch, asm.size(self._rows.input)), top)
        start = asm.times(asm.times(height, asm.size(self._columns.input)), self._channels)
        line = _Line(panel, number, start, self._rows.taps(asm, top))
        first, end = self._columns.inner(asm)
        end = asm.chosen(asm.less(columns - 1, asm.sub(end, first)), end, first)
        last = asm.sub(end, columns)
        asm.repeat(first, end, columns, lambda column: self._inner(line, asm.minimum(column, last)))
        outside = asm.add(first, asm.sub(asm.size(self._columns.output), end))

        def single(index: Index) -> None:
            behind = asm.add(asm.sub(index, first), end)
            self._single(line, asm.chosen(asm.less(index, first), index, behind))

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
        totals = accumulate([form.epilogue.start(asm, self._memories, origin, each) for each in parts])
        for part, total in zip(parts, totals, strict=True):
            value = form.epilogue.finish(asm, self._memories, origin, part, total)
            offset = origin.offset(asm, form.result, part)
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

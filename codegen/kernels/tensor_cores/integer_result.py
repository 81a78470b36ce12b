"""Sums of products of 8-bit integers become the layer's result: zero point, scales, then the elementwise ops.

An image's integers stand for ``scale * (integer - zero point)``, and copies fill padding with the integer zero, so a
sum is too large by the zero point times the sum of the filters over the taps on the image. Each panel of filters is
followed by its scales and by a summed-area table of its integers (``Quantise``), which has that sum for any rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.rounded_numbers import dequantised
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.tensor_cores.results import FinishedResult
from sartor.codegen.kernels.tensor_cores.staging import PixelRows
from sartor.codegen.mlir.iree_compiler import arith, ir

FLOAT_BYTES = 4


@dataclass(frozen=True)
class FilterPanels:
    """Panels of packed filters, each followed by scales and sums of its channels in f32.

    Attributes:
        channels: of a panel.
        numbers: bytes of a panel's integers.
        taps: rows and columns of a filter; None if each channel has one sum instead of a table.
    """

    channels: int
    numbers: int
    taps: tuple[int, int] | None

    @property
    def trailer(self) -> int:
        """Bytes that follow a panel's integers."""
        entries = 1 if self.taps is None else (self.taps[0] + 1) * (self.taps[1] + 1)
        return (1 + entries) * self.channels * FLOAT_BYTES

    def load(self, asm: ThreadAssembler, memory: ir.Value, row: Index, column: Index) -> ir.Value:
        """A row of numbers after a panel's integers, scales being row 0: those of a vector of channels."""
        panel, inside = asm.divide(column, self.channels)
        start = asm.add(asm.mul(panel, self.numbers + self.trailer), self.numbers)
        place = asm.add(asm.mul(row, self.channels * FLOAT_BYTES), asm.mul(inside, FLOAT_BYTES))
        return asm.load_floats(memory, asm.add(start, place))


@dataclass(frozen=True)
class IntegerResult(FinishedResult):
    """Sums of integers become the layer's result.

    Attributes:
        source: rows of the LHS, which have the taps on the image.
        memories: positions of image and packed filters.
        panels: of the filters.
    """

    source: PixelRows
    memories: tuple[int, int]
    panels: FilterPanels

    def finish(
        self, asm: ThreadAssembler, memories: Sequence[ir.Value], origin: TileOrigin, tile: TileVector, total: ir.Value
    ) -> None:
        """Finish and store a vector of sums."""
        image, filters = (memories[memory] for memory in self.memories)
        column = asm.mul(asm.add(origin.vector, tile.vector), self.lanes)
        scale = asm.scale_of(image)
        words = asm.vector_type(ir.IntegerType.get_signless(32))
        weight = self._weight(asm, filters, asm.add(origin.column, tile.column), column)
        zero = arith.muli(arith.fptosi(words, weight), arith.fptosi(words, scale.zero))
        factor = arith.mulf(self.panels.load(asm, filters, 0, column), scale.step)
        start = self.epilogue.start(asm, memories, origin, tile)
        real = dequantised(asm, arith.subi(total, zero), start, factor)
        finished = self.epilogue.finish(asm, memories, origin, tile, real)
        asm.store(finished, memories[self.stored.memory], origin.offset(asm, self.stored, tile), self.lanes)

    def _weight(self, asm: ThreadAssembler, filters: ir.Value, row: Index, column: Index) -> ir.Value:
        """Sums of the filters of a vector of channels over the taps of a row that lie on the image."""
        if self.panels.taps is None:
            return self.panels.load(asm, filters, 1, column)
        down, across = self.source.axes
        line, pixel = asm.divide(row, across.output) if down.output > 1 else (0, row)
        rows, columns = _touching(asm, line, down), _touching(asm, pixel, across)
        _, width = self.panels.taps

        def entry(row: Index, end: Index) -> ir.Value:
            return self.panels.load(asm, filters, asm.add(1, asm.mul(row, width + 1), end), column)

        def strip(end: Index) -> ir.Value:
            last = entry(rows[1], end)
            return last if rows[0] == 0 else arith.subf(last, entry(rows[0], end))

        right = strip(columns[1])
        return right if columns[0] == 0 else arith.subf(right, strip(columns[0]))


def _touching(asm: ThreadAssembler, pixel: Index, axis: Axis) -> tuple[Index, Index]:
    """First and end of the taps of a window that lie on the image."""
    if not axis.is_padded:
        return 0, axis.kernel
    start = asm.add(asm.mul(pixel, axis.stride), -axis.padding)
    before = asm.maximum(asm.sub(0, start), 0)
    within = asm.maximum(asm.sub(axis.input, start), 0)
    end = asm.minimum(asm.divide_up(within, axis.dilation), axis.kernel)
    return asm.minimum(asm.divide_up(before, axis.dilation), end), end

"""Depthwise convolution and pooling: a thread computes some adjacent pixels of a vector of channels.

Threads of a warp have adjacent vectors of channels, so that together they read whole lines of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Window
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.kernels.windows.window import window_sliding
from sartor.codegen.mlir.iree_compiler import arith, ir

_THREADS = 128
# Taps that are written out; of larger windows, kernel rows are a loop.
_MOST_WRITTEN_OUT = 9
_WIDEST = 32


@dataclass(frozen=True)
class ThreadWindow:
    """The code of a window.

    Attributes:
        sliding: the window over memory.
        pixels: adjacent pixels of a row that a thread computes.
    """

    sliding: Sliding
    pixels: int

    @staticmethod
    def of(layer: ImageLayer, window: Window, pixels: int) -> ThreadWindow:
        """The window of a layer; sets the packing of its filters.

        Raises:
            RejectionError: if the layer cannot be computed so.
        """
        if window.kernel[1] > _WIDEST:
            raise RejectionError(f"a window of {window.kernel[1]} columns is too wide to be written out")
        return ThreadWindow(window_sliding(layer, window, Tiling(1, 1, 1, 1, 1, 1)), pixels)

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.sliding.nest.lanes

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return _THREADS

    @property
    def vectors(self) -> int:
        """Vectors that hold the channels of a pixel."""
        return self.sliding.nest.channels // self.lanes

    @property
    def _across(self) -> int:
        """Threads along a row of the result, for one vector."""
        return -(-self.sliding.nest.columns.output // self.pixels)

    @property
    def _work(self) -> int:
        """Threads that have something to compute, for one image."""
        return self.vectors * self._across * self.sliding.nest.rows.output

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups over an image, and for each image."""
        return -(-self._work // _THREADS), 1, self.sliding.nest.batches

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        if not isinstance(asm, ThreadAssembler):
            raise TypeError("the code is that of a thread")
        number = asm.add(asm.mul(group[0], _THREADS), asm.thread())
        rest, vector = asm.divide(number, self.vectors)
        row, part = asm.divide(rest, self._across)
        column = asm.mul(part, self.pixels)
        exists = True if self._work % _THREADS == 0 else asm.less(number, self._work)
        writer = _Writer(self, asm, memories, TileOrigin(group[2], row, column, vector))
        asm.when(exists, writer.write)


@dataclass
class _Writer:
    """Emits the code of one thread."""

    code: ThreadWindow
    asm: ThreadAssembler
    memories: Sequence[ir.Value]
    origin: TileOrigin

    def write(self) -> None:
        nest, asm = self.code.sliding.nest, self.asm
        places = [TileVector(0, index, 0, self.code.lanes) for index in range(self.code.pixels)]
        starts = [nest.epilogue.start(asm, self.memories, self.origin, place) for place in places]
        taps = nest.rows.kernel * nest.columns.kernel
        if taps <= _MOST_WRITTEN_OUT:
            totals = starts
            for tap in range(nest.rows.kernel):
                totals = self._kernel_row(tap, totals)
        else:
            totals = asm.loop(0, nest.rows.kernel, 1, starts, self._kernel_row)
        for place, total in zip(places, totals, strict=True):
            column = asm.add(self.origin.column, place.column)
            exists = True if nest.columns.output % self.code.pixels == 0 else asm.less(column, nest.columns.output)
            asm.when(exists, self._store(place, total))

    def _store(self, place: TileVector, total: ir.Value) -> Callable[[], None]:
        nest, asm = self.code.sliding.nest, self.asm

        def store() -> None:
            # Offsets that are computed within the branch cannot be used after it.
            origin = replace(self.origin, bases={})
            finished = nest.epilogue.finish(asm, self.memories, origin, place, total)
            asm.store(finished, self.memories[nest.result.memory], origin.offset(asm, nest.result, place), asm.lanes)

        return store

    def _kernel_row(self, tap: Index, totals: list[ir.Value]) -> list[ir.Value]:
        """Combine the pixels of a kernel row, each read once, with the totals that use them."""
        nest, asm = self.code.sliding.nest, self.asm
        rows, columns = nest.rows, nest.columns
        row = asm.add(asm.mul(self.origin.row, rows.stride), asm.mul(tap, rows.dilation), -rows.padding)
        is_row: Condition = asm.within(row, rows.input) if rows.is_padded else True
        filters = [self._filter(tap, index) for index in range(columns.kernel)]
        uses: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(self.code.pixels):
            for tap_column in range(columns.kernel):
                uses.setdefault(pixel * columns.stride + tap_column * columns.dilation, []).append((pixel, tap_column))
        for distance in sorted(uses):
            value, present = self._pixel(row, is_row, distance)
            for pixel, filter_index in uses[distance]:
                combined = self.code.sliding.combine(asm, value, filters[filter_index], totals[pixel])
                totals[pixel] = self._chosen(present, combined, totals[pixel])
        return totals

    def _pixel(self, row: Index, is_row: Condition, distance: int) -> tuple[ir.Value, Condition]:
        """A pixel of the image at a distance from the first, and whether there is one."""
        sliding, asm, columns = self.code.sliding, self.asm, self.code.sliding.nest.columns
        image = sliding.image
        column = asm.add(asm.mul(self.origin.column, columns.stride), distance - columns.padding)
        is_last_partial = columns.output % self.code.pixels != 0
        is_column = asm.within(column, columns.input) if columns.is_padded or is_last_partial else True
        present = asm.all_of(is_row, is_column)
        offset = asm.add(
            asm.mul(self.origin.batch, image.batch),
            asm.mul(row, image.row),
            asm.mul(column, image.column),
            asm.mul(self.origin.vector, image.vector or 0),
        )
        if not isinstance(present, bool):
            offset = arith.select(present, asm.value(offset), asm.value(0))
        return asm.load(self.memories[image.memory], offset, asm.lanes), present

    def _chosen(self, present: Condition, one: ir.Value, other: ir.Value) -> ir.Value:
        if isinstance(present, bool):
            return one if present else other
        return arith.select(present, one, other)

    def _filter(self, tap: Index, column: int) -> ir.Value | None:
        sliding, asm = self.code.sliding, self.asm
        if sliding.taps is None:
            return None
        offset = asm.add(
            asm.mul(self.origin.vector, sliding.taps.vector),
            asm.mul(tap, sliding.taps.row),
            column * sliding.taps.column,
        )
        return asm.load(self.memories[sliding.filters], offset, asm.lanes)

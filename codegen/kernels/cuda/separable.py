"""A depthwise and a 1x1 convolution as one kernel: the product's LHS is computed where others copy it.

So a launch is saved, and the values between are never in memory. Each workgroup computes the rows that it multiplies;
workgroups for other columns of the same rows compute them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.tensor_cores.implicit_product import ImplicitProduct
from sartor.codegen.kernels.tensor_cores.staging import Place, chosen, swizzled
from sartor.codegen.kernels.tensor_cores.tiling import UNIT, BlockTiling
from sartor.codegen.kernels.windows.row_strips import Wiring
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.mlir.iree_compiler import arith, ir

# Taps that are written out; of larger windows, kernel rows are a loop.
_MOST_WRITTEN_OUT = 9
_FIRST = TileVector(0, 0, 0, 0)


def vectors_of_a_thread(tiling: BlockTiling, lanes: int, element_bytes: int) -> int:
    """Vectors of ``lanes`` channels that a thread computes for a stage of a product."""
    return tiling.rows * tiling.depth // (tiling.threads * lanes * element_bytes)


@dataclass(frozen=True)
class ComputedRows:
    """Rows of the LHS that are a window's results, channels innermost: the part of one thread for each stage.

    Attributes:
        window: the depthwise convolution.
        tiling: of the product.
        element_bytes: of an element in shared memory.
        memories: the window's buffers, while code is emitted.
    """

    window: Sliding
    tiling: BlockTiling
    element_bytes: int
    memories: tuple[ir.Value, ...] = ()

    @property
    def passes(self) -> int:
        """Vectors of channels that a thread computes for a stage."""
        return vectors_of_a_thread(self.tiling, self._lanes, self.element_bytes)

    @property
    def _lanes(self) -> int:
        return self.window.nest.lanes

    @property
    def _per_row(self) -> int:
        """Vectors of a row of a stage."""
        return self.tiling.units * UNIT // (self._lanes * self.element_bytes)

    def check(self) -> None:
        """Make sure that all threads compute equally many vectors, each thread of the same channels.

        Raises:
            RejectionError: if not.
        """
        if self.window.nest.channels % self._lanes:
            raise RejectionError(f"{self.window.nest.channels} channels do not divide into vectors of {self._lanes}")
        if self.tiling.threads % self._per_row or (self.tiling.rows * self._per_row) % self.tiling.threads:
            raise RejectionError("the windows of a stage are not divided equally among threads")

    def places(self, asm: ThreadAssembler, thread: Index, first: Index) -> list[Place]:
        """Where the thread's pixels lie; those beyond the last are the last, and their sums are not stored."""
        start, part = asm.divide(thread, self._per_row)
        unit, rest = asm.divide(part, UNIT // (self._lanes * self.element_bytes))
        rows, columns = self.window.nest.rows, self.window.nest.columns
        pixels = rows.output * columns.output
        list_of_places = []
        for index in range(self.passes):
            row = asm.add(start, index * (self.tiling.threads // self._per_row))
            pixel = asm.add(first, row)
            pixel = pixel if pixels % self.tiling.rows == 0 else asm.minimum(pixel, pixels - 1)
            line, column = asm.divide(pixel, columns.output)
            target = asm.mul(swizzled(asm, row, unit, self.tiling.units), UNIT // self.element_bytes)
            list_of_places.append(Place(asm.add(target, asm.mul(rest, self._lanes)), line, column, True))
        return list_of_places

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        places: Sequence[Place],
        part: tuple[Index, Index, Index],
        target: Index,
    ) -> None:
        """Compute the thread's vectors of one stage; arguments as for ``StagedRows``."""
        batch, thread, first = part
        _, inside = asm.divide(thread, self._per_row)
        vector = asm.add(asm.divide(first, self._lanes)[0], inside)
        vectors = self.window.nest.channels // self._lanes
        exists = self.window.nest.channels % (self.tiling.depth // self.element_bytes) == 0 or asm.less(vector, vectors)
        vector = asm.value(chosen(asm, exists, vector, vectors - 1))
        origins = [TileOrigin(batch, corner.y, corner.x, vector) for corner in places]
        for place, origin, total in zip(places, origins, self._totals(asm, origins), strict=True):
            value = self.window.nest.epilogue.finish(asm, self.memories, origin, self._place, total)
            if not isinstance(exists, bool):
                value = arith.select(exists, value, asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0)))
            asm.store(value, memories[1], asm.add(target, place.target), self._lanes)

    @property
    def _place(self) -> TileVector:
        return _FIRST._replace(channels=self._lanes)

    def _totals(self, asm: ThreadAssembler, origins: Sequence[TileOrigin]) -> list[ir.Value]:
        """The windows' sums at some pixels of the same channels, so that filters are read once."""
        nest = self.window.nest
        starts = [nest.epilogue.start(asm, self.memories, origin, self._place) for origin in origins]

        def kernel_row(tap: Index, totals: list[ir.Value]) -> list[ir.Value]:
            filters = [self._filter(asm, origins[0].vector, tap, index) for index in range(nest.columns.kernel)]
            return [
                self._row_of(asm, origin, tap, filters, total) for origin, total in zip(origins, totals, strict=True)
            ]

        if nest.rows.kernel * nest.columns.kernel > _MOST_WRITTEN_OUT:
            return asm.loop(0, nest.rows.kernel, 1, starts, kernel_row)
        totals = starts
        for tap in range(nest.rows.kernel):
            totals = kernel_row(tap, totals)
        return totals

    def _row_of(
        self, asm: ThreadAssembler, origin: TileOrigin, tap: Index, filters: Sequence[ir.Value], total: ir.Value
    ) -> ir.Value:
        """A sum with the products of one row of the kernel."""
        rows, columns, image = self.window.nest.rows, self.window.nest.columns, self.window.image
        row = asm.add(asm.mul(origin.row, rows.stride), asm.mul(tap, rows.dilation), -rows.padding)
        is_row: Condition = asm.within(row, rows.input) if rows.is_padded else True
        base = asm.add(
            asm.mul(origin.batch, image.batch), asm.mul(row, image.row), asm.mul(origin.vector, image.vector or 0)
        )
        for number, filters_of_row in enumerate(filters):
            column = asm.add(asm.mul(origin.column, columns.stride), number * columns.dilation - columns.padding)
            present = asm.all_of(is_row, asm.within(column, columns.input) if columns.is_padded else True)
            offset = chosen(asm, present, asm.add(base, asm.mul(column, image.column)), 0)
            pixel = asm.load(self.memories[image.memory], offset, self._lanes)
            added = self.window.combine(asm, pixel, filters_of_row, total)
            total = added if isinstance(present, bool) else arith.select(present, added, total)
        return total

    def _filter(self, asm: ThreadAssembler, vector: Index, tap: Index, column: int) -> ir.Value:
        taps = self.window.taps
        if taps is None:
            raise RejectionError("the window has no filters")
        offset = asm.add(asm.mul(vector, taps.vector), asm.mul(tap, taps.row), column * taps.column)
        return asm.load(self.memories[self.window.filters], offset, self._lanes)


@dataclass(frozen=True)
class SeparableProduct:
    """The code of both convolutions.

    Attributes:
        product: the 1x1 convolution.
        rows: the depthwise convolution.
        wirings: for the buffers of each, their positions among the kernel's.
    """

    product: ImplicitProduct
    rows: ComputedRows
    wirings: tuple[Wiring, Wiring]

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.product.lanes

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.product.threads

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups, as for the product."""
        return self.product.groups

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        # What is between both convolutions has no buffer, and nothing reads or writes the one in its place.
        buffers = [*memories, memories[0]]
        first, second = ([buffers[index] for index in wiring] for wiring in self.wirings)
        rows = replace(self.rows, memories=tuple(first))
        replace(self.product, computed=rows).write(asm, second, group)

"""Windows over images in 8 bits whose rows become f32 once, for all windows that read them.

A window of three rows reads each row of the image for three rows of the result, and where its tiles meet some pixels
twice. So the rows that the next row of the result reads for the first time are converted to a ring of rows in the
first-level cache, for the vectors of a panel. What is computed, and in which order, is as without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.windows.sliding import Sliding
from sartor.codegen.mlir.iree_compiler import ir

# IREE's worker threads have stacks of 128 KiB, of which executables may take half.
SCRATCH_BYTES = 48 << 10
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class ConvertedRows:
    """The kernel.

    Attributes:
        sliding: the window over the ring.
        image: access to the image.
    """

    sliding: Sliding
    image: Access

    @staticmethod
    def of(sliding: Sliding) -> ConvertedRows:
        """A window over an image with its rows converted.

        Raises:
            RejectionError: if rows or pixels are skipped, or the ring exceeds the stack.
        """
        nest = sliding.nest
        if any(axis.stride != 1 or axis.dilation != 1 for axis in (nest.rows, nest.columns)):
            raise RejectionError("rows are converted for windows that skip none")
        pixel = nest.tiling.vectors * nest.lanes
        row = nest.columns.input * pixel
        # A power of two, by which numbers of rows are divided at no cost.
        ring = 1 << (nest.rows.kernel - 1).bit_length()
        if ring * row * _FLOAT_BYTES > SCRATCH_BYTES:
            raise RejectionError("the rows that a window reads exceed the stack")
        # The ring follows the kernel's buffers, of which the result is the last.
        local = Access(nest.result.memory + 1, 0, row, pixel, nest.lanes)
        return ConvertedRows(replace(sliding, image=local, ring=ring), sliding.image)

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.sliding.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.sliding.lanes

    @property
    def _nest(self) -> Nest:
        return self.sliding.nest

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        ring = asm.scratch(self.sliding.ring * self.sliding.image.row, ir.F32Type.get())
        buffers = [*memories, ring]
        self._nest.write_panels(asm, group, partial(self._panel, asm, buffers, group))

    def _panel(
        self, asm: Assembler, buffers: Sequence[ir.Value], group: tuple[Index, Index, Index], panel: Panel
    ) -> None:
        nest, axis = self._nest, self._nest.rows
        first, end = workgroup_range(asm, axis.output, nest.groups[0], group[0])
        accumulate = self.sliding.accumulation(asm, buffers)
        copy = _Copy(self, asm, buffers, panel, group[2])
        top = asm.add(first, -axis.padding)
        copy.rows(top, asm.add(top, axis.kernel - 1))

        def every(row: Index) -> None:
            last = asm.add(row, axis.kernel - 1 - axis.padding)
            copy.rows(last, asm.add(last, 1))
            nest.write_panel(asm, buffers, (row, asm.add(row, 1)), panel, accumulate, group[2])

        asm.repeat(first, end, 1, every)


@dataclass(frozen=True)
class _Copy:
    """Converts rows of a panel."""

    of: ConvertedRows
    asm: Assembler
    buffers: Sequence[ir.Value]
    panel: Panel
    batch: Index

    def rows(self, first: Index, end: Index) -> None:
        """Convert those of a range of rows that the image has."""
        asm, axis = self.asm, self.of.sliding.nest.rows
        asm.repeat(asm.maximum(first, 0), asm.minimum(end, axis.input), 1, self._row)

    def _row(self, row: Index) -> None:
        asm, sliding, image = self.asm, self.of.sliding, self.of.image
        local = sliding.image
        vector = asm.mul(self.panel.index, sliding.nest.tiling.vectors)
        begin = asm.add(
            asm.mul(self.batch, image.batch), asm.mul(row, image.row), asm.mul(vector, image.vector or 0), image.base
        )
        into = asm.mul(asm.divide(row, sliding.ring)[1], local.row)

        def every(column: Index) -> None:
            start = asm.add(begin, asm.mul(column, image.column))
            place = asm.add(into, asm.mul(column, local.column))
            for index in range(self.panel.vectors):
                count = self.panel.count(index, sliding.nest.lanes)
                read = asm.add(start, index * (image.vector or 0))
                value = asm.load(self.buffers[image.memory], read, count)
                asm.store(value, self.buffers[local.memory], asm.add(place, index * sliding.nest.lanes), asm.lanes)

        asm.repeat(0, sliding.nest.columns.input, 1, every)

"""Convolutions and products over strips: rows that a strip reads are widened to 16 bits, then multiplied by all panels.

The widened rows lie on the thread's stack, or in a workspace if they are too long for it. What is left of a sequence of
pixels that strips do not divide is a strip of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.widened.rows import WidenedRows
from sartor.codegen.mlir.iree_compiler import ir

# IREE's worker threads have stacks of 128 KiB, of which executables may take half.
SCRATCH_BYTES = 56 << 10
ELEMENT_BYTES = 2
SCRATCH = -1
"""Where a contraction finds the widened rows: behind all other buffers."""


@dataclass(frozen=True)
class Strip:
    """Rows of a result, cut into bands.

    Attributes:
        contraction: multiplies the widened rows, whose offsets count from the first one of a band.
        rows: how rows are widened.
        base: offset of the first row of the image.
        band: rows of the result that are computed at once.
    """

    contraction: Contraction
    rows: WidenedRows
    base: int
    band: int

    @property
    def bands(self) -> int:
        """How many bands there are."""
        return -(-self.contraction.nest.rows.output // self.band)

    @property
    def elements(self) -> int:
        """Elements of the widened rows of a band."""
        return self.rows.most(self.band) * self.rows.row

    def write(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        source: int,
        group: tuple[Index, Index, Index],
        band: Index,
        start: Index,
    ) -> None:
        """Emit the code of a band, whose widened rows begin at ``start``."""
        nest = self.contraction.nest
        first = asm.mul(band, self.band)
        end = asm.minimum(asm.add(first, self.band), nest.rows.output)
        read = self.rows.read(asm, first, end)
        image = asm.add(asm.mul(group[2], self.rows.image.batch), self.base)
        self.rows.write(asm, (memories[source], memories[SCRATCH]), (image, start), read)
        shift = asm.add(start, asm.mul(read[0], -self.rows.row))
        accumulate = self.contraction.shifted_accumulation(asm, memories, shift)
        nest.write_share(asm, memories, group, (first, end), accumulate)


@dataclass(frozen=True)
class WidenedStrips:
    """The kernel.

    Attributes:
        source: position of the image among the buffers.
        main: the strip that is divided among workgroups.
        rest: pixels that its rows do not cover, which the last workgroup computes; None for none.
    """

    source: int
    main: Strip
    rest: Strip | None = None

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.main.contraction.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.main.contraction.lanes

    @property
    def _elements(self) -> int:
        """Elements of the widened rows of a workgroup."""
        return max(strip.elements for strip in (self.main, self.rest) if strip is not None)

    @property
    def workspace(self) -> TensorType | None:
        """Type of the widened rows of all workgroups; None if they are on the stack."""
        if self._elements * ELEMENT_BYTES <= SCRATCH_BYTES:
            return None
        return TensorType((math.prod(self.groups) * self._elements,), "i16")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        buffers, start = [*memories], self._start(asm, group)
        if self.workspace is None:
            buffers.append(asm.scratch(self._elements, ir.IntegerType.get_signless(8 * ELEMENT_BYTES)))
        asm.copy_scale(buffers[SCRATCH], memories[self.source])
        bands = workgroup_range(asm, self.main.bands, self.groups[0], group[0])
        asm.repeat(*bands, 1, lambda band: self.main.write(asm, buffers, self.source, group, band, start))
        rest = self.rest
        if rest is not None:
            is_last = asm.equal(group[0], self.groups[0] - 1)
            asm.when(is_last, lambda: rest.write(asm, buffers, self.source, group, 0, start))

    def _start(self, asm: Assembler, group: tuple[Index, Index, Index]) -> Index:
        """Where the widened rows of a workgroup begin."""
        if self.workspace is None:
            return 0
        first, second, _ = self.groups
        number = asm.add(group[0], asm.mul(group[1], first), asm.mul(group[2], first * second))
        return asm.mul(number, self._elements)

"""Two layers as one kernel: the first computes a row strip into scratch memory, which the second reads at once.

So intermediate values never leave the core. Each row strip is computed once, so each row of the second layer's result
must depend on a single row of the first's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.nest import NestCode
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.mlir.iree_compiler import ir

Wiring = tuple[int, ...]
"""For each buffer of a layer its position among the kernel's buffers, which the scratch memory follows."""


@dataclass(frozen=True)
class RowStrips:
    """Two nests over the same rows, connected by scratch memory.

    Attributes:
        first: computes all channels of a row strip into scratch memory.
        second: reads it; each of its rows is a row strip.
        wirings: the buffers of the first layer, then those of the second.
        band: rows of a row strip.
        workgroups: workgroups that partition the row strips.
        scratch: elements of the scratch memory.
    """

    first: NestCode
    second: NestCode
    wirings: tuple[Wiring, Wiring]
    band: int
    workgroups: int
    scratch: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.workgroups, 1, self.second.nest.batches

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.second.lanes

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        read, written = (ir.MemRefType(memory.type).element_type for memory in (memories[0], memories[-1]))
        # A model that casts its result alone computes what lies between in f32.
        element = written if read == written else ir.F32Type.get()
        buffers = [*memories, asm.scratch(self.scratch, element)]
        first, second = ([buffers[index] for index in wiring] for wiring in self.wirings)
        strips = workgroup_range(asm, self.second.nest.rows.output, self.workgroups, group[0])

        def every(strip: Index) -> None:
            begin = asm.mul(strip, self.band)
            self.first.write_rows(asm, first, group[2], (begin, asm.add(begin, self.band)))
            self.second.write_rows(asm, second, group[2], (strip, asm.add(strip, 1)))

        asm.repeat(*strips, 1, every)

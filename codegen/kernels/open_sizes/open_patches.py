"""Patches of images of any size as a tensor, for products whose rows are too long to be gathered beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.partition import PartitionedKernel, workgroup_range
from sartor.codegen.kernels.open_sizes.patches import Patches
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class OpenPatches(PartitionedKernel):
    """A kernel that gathers all patches of its first buffer in its second.

    Attributes:
        patches: what is gathered.
        places: how many patches there are.
        lanes: elements of a vector.
        workgroups: workgroups that partition the patches.
    """

    patches: Patches
    places: Count
    lanes: int
    workgroups: int

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        image, target = memories
        first, end = workgroup_range(asm, asm.size(self.places), self.workgroups, group[0])
        places = first, asm.sub(end, first)
        self.patches.gather(asm, image, target, places, asm.mul(first, self.patches.depth))

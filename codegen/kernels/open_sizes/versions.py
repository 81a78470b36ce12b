"""A kernel in two versions, of which the size of a call chooses one when it runs (code versioning).

Both are in one executable and read the same buffers, so that a call is recorded and submitted as with one version, and
no workgroup but looks at a size that it has anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.mlir.iree_compiler import ir


class Part(NamedTuple):
    """The part of a buffer that a version reads.

    Attributes:
        first: its first element.
        elements: how many there are.
    """

    first: int
    elements: int


@dataclass(frozen=True)
class Version:
    """One version.

    Attributes:
        code: what it computes.
        parts: by position of a buffer, the part of it that the version reads in place of all.
        buffers: how many buffers it has: fewer if only the other one has a workspace.
    """

    code: KernelCode
    parts: tuple[tuple[int, Part], ...]
    buffers: int

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        own = [*memories[: self.buffers]]
        for buffer, part in self.parts:
            own[buffer] = asm.part_of(own[buffer], part.first, part.elements)
        pairs = tuple(zip(group, self.code.groups, strict=True))
        # An index along a dimension of one workgroup is a constant for code that has one alone.
        within = asm.all_of(*(asm.less(index, count) for index, count in pairs))
        position = tuple(index if count > 1 else 0 for index, count in pairs)
        asm.when(within, lambda: self.code.write(asm, own, (position[0], position[1], position[2])))


@dataclass(frozen=True)
class SizedVersions:
    """A kernel in two versions.

    Attributes:
        few: for few places.
        many: for others.
        places: how many there are.
        least: from so many places on the second version runs.
    """

    few: Version
    many: Version
    places: Count
    least: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some have nothing to do in one version."""
        x, y, z = map(max, self.few.code.groups, self.many.code.groups)
        return x, y, z

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.many.code.lanes

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        asm.branch(
            asm.less(asm.size(self.places), self.least),
            lambda: self.few.write(asm, memories, group),
            lambda: self.many.write(asm, memories, group),
        )

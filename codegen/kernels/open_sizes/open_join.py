"""Images of any size, or other rows, joined along their channels, with the elementwise ops that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.mlir.iree_compiler import ir

# Vectors of a row that are written out; more are processed in a loop.
_MOST_WRITTEN_OUT = 8


@dataclass(frozen=True)
class JoinedPart:
    """What is copied to some channels of each row.

    Attributes:
        memory: position of its buffer.
        channels: how many it has.
        epilogue: the ops that follow.
        result: how results are stored.
    """

    memory: int
    channels: int
    epilogue: Epilogue
    result: Access


@dataclass(frozen=True)
class OpenJoin:
    """A kernel that completes row by row.

    Attributes:
        parts: in their order.
        rows: number of rows.
        lanes: elements of a vector.
        workgroups: workgroups that partition the rows.
    """

    parts: tuple[JoinedPart, ...]
    rows: Count
    lanes: int
    workgroups: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.workgroups, 1, 1

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        first, end = workgroup_range(asm, asm.size(self.rows), self.workgroups, group[0])

        def row(number: Index) -> None:
            for part in self.parts:
                self._copy(asm, memories, part, number)

        asm.repeat(first, end, 1, row)

    def _copy(self, asm: Assembler, memories: Sequence[ir.Value], part: JoinedPart, row: Index) -> None:
        """Emit the copy of a part of a row."""
        step = self.lanes * min(_MOST_WRITTEN_OUT, -(-part.channels // self.lanes))
        write = partial(self._vectors, asm, memories, part, row)
        asm.by_steps(part.channels, step, write)

    def _vectors(
        self, asm: Assembler, memories: Sequence[ir.Value], part: JoinedPart, row: Index, first: Index, channels: int
    ) -> None:
        """Emit the copies of some channels of a part of a row."""
        begin = asm.add(asm.mul(row, part.channels), first)
        origin = TileOrigin(0, 0, row, asm.divide(first, self.lanes)[0])
        for vector, channel in enumerate(range(0, channels, self.lanes)):
            count = min(self.lanes, channels - channel)
            loaded = asm.load(memories[part.memory], asm.add(begin, channel), count)
            place = TileVector(0, 0, vector, count)
            value = part.epilogue.finish(asm, memories, origin, place, loaded)
            asm.store(value, memories[part.result.memory], origin.offset(asm, part.result, place), count)

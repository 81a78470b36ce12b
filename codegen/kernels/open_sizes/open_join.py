"""Images of any size, or other rows, joined along their channels, with the elementwise ops that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.loops.partition import PartitionedKernel, workgroup_range
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
        repeats: how often each row of the image, and each pixel of a row, is repeated.
    """

    memory: int
    channels: int
    epilogue: Epilogue
    result: Access
    repeats: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class OpenJoin(PartitionedKernel):
    """A kernel that completes row by row.

    Attributes:
        parts: in their order.
        rows: number of rows.
        lanes: elements of a vector.
        workgroups: workgroups that partition the rows.
        across: of images some of which are enlarged, the pixels of a row of the result.
    """

    parts: tuple[JoinedPart, ...]
    rows: Count
    lanes: int
    workgroups: int
    across: Count | None = None

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        first, end = workgroup_range(asm, asm.size(self.rows), self.workgroups, group[0])
        self._rows(asm, memories, (first, end), 0)

    @property
    def depth(self) -> int:
        """Elements of a row."""
        return sum(part.channels for part in self.parts)

    def fill(self, asm: Assembler, memories: Sequence[ir.Value], places: tuple[Index, Index]) -> None:
        """Emit code for some rows; see ``MadeRows``."""
        first, count = places
        self._rows(asm, memories, (first, asm.add(first, count)), asm.sub(0, asm.mul(first, self.depth)))

    def _rows(self, asm: Assembler, memories: Sequence[ir.Value], rows: tuple[Index, Index], shift: Index) -> None:
        """Emit rows, given by the first and their end, which lie ``shift`` elements after where their numbers say."""

        def row(number: Index, sources: Sequence[Index]) -> None:
            for part, source in zip(self.parts, sources, strict=True):
                _PartWriter(self, asm, memories, part, number, shift, source).write()

        if self.across is None:
            asm.repeat(*rows, 1, lambda number: row(number, [number] * len(self.parts)))
            return
        # Images without pixels have no rows, but their ends are computed, and a processor stops at a division by zero.
        (first, end), across = rows, asm.maximum(asm.size(self.across), 1)

        def line(number: Index) -> None:
            begin = asm.times(across, number)
            own = asm.maximum(first, begin), asm.minimum(end, asm.add(begin, across))
            asm.repeat(
                *own, 1, lambda place: row(place, [self._source(asm, part, number, place) for part in self.parts])
            )

        last = asm.divide(asm.sub(asm.add(end, across), 1), across)[0]
        asm.repeat(asm.divide(first, across)[0], last, 1, line)

    def _source(self, asm: Assembler, part: JoinedPart, line: Index, place: Index) -> Index:
        """The number of a part's pixel that is copied to a place in a line of all images.

        The first line of an image is a multiple of what its lines are repeated.
        """
        if self.across is None or part.repeats == (1, 1):
            return place
        (down, across), width = part.repeats, asm.size(self.across)
        column = asm.sub(place, asm.times(width, line))
        own = asm.times(asm.divide(width, across)[0], asm.divide(line, down)[0])
        return asm.add(own, asm.divide(column, across)[0])


@dataclass(frozen=True)
class _PartWriter:
    """Emits the copy of a part of a row."""

    of: OpenJoin
    asm: Assembler
    memories: Sequence[ir.Value]
    part: JoinedPart
    row: Index
    shift: Index
    source: Index

    def write(self) -> None:
        vectors = min(_MOST_WRITTEN_OUT, -(-self.part.channels // self.of.lanes))
        self.asm.by_steps(self.part.channels, self.of.lanes * vectors, self._vectors)

    def _vectors(self, first: Index, channels: int) -> None:
        """Emit the copies of some channels."""
        asm, part, memories, lanes = self.asm, self.part, self.memories, self.of.lanes
        begin = asm.add(asm.mul(self.source, part.channels), first)
        origin = TileOrigin(0, 0, self.row, asm.divide(first, lanes)[0])
        for vector, channel in enumerate(range(0, channels, lanes)):
            count = min(lanes, channels - channel)
            loaded = asm.load(memories[part.memory], asm.add(begin, channel), count)
            place = TileVector(0, 0, vector, count)
            value = part.epilogue.finish(asm, memories, origin, place, loaded)
            offset = asm.add(origin.offset(asm, part.result, place), self.shift)
            asm.store(value, memories[part.result.memory], offset, count)

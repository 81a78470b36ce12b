"""From the sums of a warp to the result in memory: the elementwise ops of the layer, or a part of a split sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, ROWS
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

Sums: TypeAlias = list[ir.Value]
"""A warp's sums, ``[rows / 16, columns / 8]`` fragments: lane ``l`` has rows ``l / 4`` and ``l / 4 + 8``, of each the
columns ``2 (l % 4)`` and the next."""

_PAIR = 2
_QUAD = 4


class TileResult(Protocol):
    """What becomes of a warp's sums."""

    @property
    def lanes(self) -> int:
        """Elements of a vector."""

    def write(
        self,
        asm: ThreadAssembler,
        memories: Sequence[ir.Value],
        place: tuple[Index, Index],
        first: tuple[Index, Index],
        lane: Index,
        sums: Sums,
    ) -> None:
        """Emit the code of one thread.

        Args:
            asm: emits.
            memories: the kernel's buffers.
            place: batch, and part of a split reduction.
            first: first row and column of the warp's sums.
            lane: number of the thread in the warp.
            sums: of the warp.
        """


@dataclass(frozen=True)
class WarpSums:
    """Where a warp's sums lie in the result.

    Attributes:
        rows: of the whole result.
        columns: of the whole result.
        tile: rows and columns of a warp.
        block: rows and columns of a workgroup.
        lanes: elements of a vector.
    """

    rows: int
    columns: int
    tile: tuple[int, int]
    block: tuple[int, int]
    lanes: int

    def each(self, asm: ThreadAssembler, first: tuple[Index, Index], lane: Index, sums: Sums, use: _Use) -> None:
        """Call ``use`` for every vector of sums that the result has."""
        group, pair = asm.divide(lane, _QUAD)
        row, column = asm.add(first[0], group), asm.add(first[1], asm.mul(pair, _PAIR))
        across = self.tile[1] // COLUMNS
        for down in range(0, self.tile[0], ROWS // 2):
            tile, half = divmod(down, ROWS)
            fragments = sums[tile * across : (tile + 1) * across]
            asm.when(self._row_exists(asm, row, down), self._row_of(asm, (row, column), down, fragments, half, use))

    def _row_exists(self, asm: ThreadAssembler, row: Index, down: int) -> Condition:
        if self.rows % self.block[0] == 0:
            return True
        return asm.less(asm.add(row, down), self.rows)

    def _row_of(
        self, asm: ThreadAssembler, start: tuple[Index, Index], down: int, fragments: Sums, half: int, use: _Use
    ) -> _Body:
        def body() -> None:
            for number, fragment in enumerate(fragments):
                pair = vector.extract(fragment, [], [half // (ROWS // 2)])
                for part in range(0, _PAIR, self.lanes):
                    across = number * COLUMNS + part
                    total = pair
                    if self.lanes < _PAIR:
                        kind = ir.VectorType.get([self.lanes], ir.VectorType(pair.type).element_type)
                        total = vector.extract_strided_slice(kind, pair, [part], [self.lanes], [1])
                    exists = True if self.columns % self.block[1] == 0 else asm.less(start[1], self.columns - across)
                    asm.when(exists, _bound(use, start, (down, across), total))

        return body


class _Use(Protocol):
    def __call__(self, start: tuple[Index, Index], inside: tuple[int, int], total: ir.Value) -> None:
        """Use a vector of sums at row and column ``start`` plus ``inside``."""


class _Body(Protocol):
    def __call__(self) -> None: ...


def _bound(use: _Use, start: tuple[Index, Index], inside: tuple[int, int], total: ir.Value) -> _Body:
    return lambda: use(start, inside, total)


@dataclass(frozen=True)
class FinishedResult:
    """Sums become the layer's result by its elementwise ops.

    Attributes:
        sums: where they lie.
        stored: the access by which the result is stored.
        epilogue: the ops around the root, rows of the result being columns of an image of one row.
    """

    sums: WarpSums
    stored: Access
    epilogue: Epilogue

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.sums.lanes

    def write(
        self,
        asm: ThreadAssembler,
        memories: Sequence[ir.Value],
        place: tuple[Index, Index],
        first: tuple[Index, Index],
        lane: Index,
        sums: Sums,
    ) -> None:
        """Emit the code of one thread."""

        def use(start: tuple[Index, Index], inside: tuple[int, int], total: ir.Value) -> None:
            vectors, _ = asm.divide(start[1], self.lanes)
            origin = TileOrigin(place[0], 0, start[0], vectors)
            self.finish(asm, memories, origin, TileVector(0, inside[0], inside[1] // self.lanes, self.lanes), total)

        self.sums.each(asm, first, lane, sums, use)

    def finish(
        self, asm: ThreadAssembler, memories: Sequence[ir.Value], origin: TileOrigin, tile: TileVector, total: ir.Value
    ) -> None:
        """Finish and store a vector of sums."""
        total = arith.addf(total, self.epilogue.start(asm, memories, origin, tile))
        finished = self.epilogue.finish(asm, memories, origin, tile, total)
        asm.store(finished, memories[self.stored.memory], origin.offset(asm, self.stored, tile), self.lanes)


@dataclass(frozen=True)
class PartialResult:
    """Sums over a part of the reduction are stored as they are: ``[part, batch, row, column]`` in f32.

    Attributes:
        sums: where they lie.
        batches: of the result.
        memory: position of the buffer.
    """

    sums: WarpSums
    batches: int
    memory: int

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.sums.lanes

    def write(
        self,
        asm: ThreadAssembler,
        memories: Sequence[ir.Value],
        place: tuple[Index, Index],
        first: tuple[Index, Index],
        lane: Index,
        sums: Sums,
    ) -> None:
        """Emit the code of one thread."""
        batch, part = place
        number = asm.add(asm.mul(part, self.batches), batch)
        base = asm.mul(number, self.sums.rows * self.sums.columns)

        def use(start: tuple[Index, Index], inside: tuple[int, int], total: ir.Value) -> None:
            row = asm.mul(asm.add(start[0], inside[0]), self.sums.columns)
            asm.store(total, memories[self.memory], asm.add(base, row, start[1], inside[1]), self.lanes)

        self.sums.each(asm, first, lane, sums, use)

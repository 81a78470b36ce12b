"""RHS matrices that are no weights: copies of their panels in the order in which AMX reads them."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.staging import interleaved
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Interleaving:
    """How panels of matrices ``[K, N]`` are copied: ``[chunk, vector, depth / group, lanes, group]``, as weights are
    packed, with zeros below the last row and beside the last column.

    Attributes:
        batch: distance in elements between matrices.
        row: between rows.
        depth: rows.
        group: rows whose numbers become adjacent.
        lanes: columns of a vector.
        tiling: sizes.
    """

    batch: int
    row: int
    depth: int
    group: int
    lanes: int
    tiling: TileTiling

    @property
    def elements(self) -> int:
        """Elements of the copy of a panel."""
        return -(-self.depth // self.tiling.depth) * self._chunk

    @property
    def _line(self) -> int:
        """Elements of a row of a tile."""
        return self.lanes * self.group

    @property
    def _tile(self) -> int:
        return self.tiling.depth * self.lanes

    @property
    def _chunk(self) -> int:
        return self.tiling.vectors * self._tile

    def write(
        self, asm: Assembler, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], panel: Panel
    ) -> None:
        """Emit the copy of a panel.

        Args:
            asm: emits the code.
            source: memory of the matrices, and the index of one of them.
            target: memory for the copy, and the offset of its start.
            panel: the panel of columns.
        """
        memory, column = source[0], asm.mul(panel.index, self.tiling.vectors * self.lanes)
        origin = asm.add(asm.mul(source[1], self.batch), column)

        def every(row: Index, rows: int) -> None:
            first = asm.add(origin, asm.mul(row, self.row))
            into = asm.add(target[1], asm.mul(row, self._chunk // self.tiling.depth))
            self._rows(asm, (memory, first), (target[0], into), panel, rows)

        asm.by_steps(self.depth, self.tiling.depth, every)

    def _rows(
        self,
        asm: Assembler,
        source: tuple[ir.Value, Index],
        target: tuple[ir.Value, Index],
        panel: Panel,
        rows: int,
    ) -> None:
        """Copy ``rows`` rows to a chunk, and fill it up with zeros."""

        def every(row: Index, rows: int) -> None:
            read = asm.add(source[1], asm.mul(row, self.row))
            into = asm.add(target[1], asm.mul(row, self._line // self.group))
            self._vectors(asm, (source[0], read), (target[0], into), panel, rows)

        asm.by_steps(rows, self.group, every)
        lines = -(-rows // self.group)
        missing = self._tile - lines * self._line
        for vector in range(panel.vectors if missing else 0):
            start = asm.add(target[1], vector * self._tile + lines * self._line)
            asm.fill(asm.zero_of(target[0]), target[0], start, missing)

    def _vectors(
        self,
        asm: Assembler,
        source: tuple[ir.Value, Index],
        target: tuple[ir.Value, Index],
        panel: Panel,
        rows: int,
    ) -> None:
        """Interleave ``rows`` rows, at most a group."""
        element = ir.MemRefType(target[0].type).element_type
        nothing = asm.splat(ir.FloatAttr.get(element, 0.0))
        for vector in range(panel.vectors):
            count, column = panel.count(vector, self.lanes), vector * self.lanes
            rows_of_vectors = [self._load(asm, source, column + row * self.row, count, element) for row in range(rows)]
            whole = interleaved([*rows_of_vectors, *[nothing] * (self.group - rows)])
            asm.store_all(whole, target[0], asm.add(target[1], vector * self._tile), self._line)

    def _load(
        self, asm: Assembler, source: tuple[ir.Value, Index], distance: int, count: int, element: ir.Type
    ) -> ir.Value:
        memory, offset = source[0], asm.add(source[1], distance)
        if ir.MemRefType(memory.type).element_type == element:
            return asm.load_as_stored(memory, offset, count)
        return asm.rounded(asm.load(memory, offset, count), element)

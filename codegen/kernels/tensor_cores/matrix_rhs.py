"""An RHS that is an activation ``[batch, depth, columns]``: copied row by row, and turned where fragments are loaded.

A stage has rows of the reduction, so that what a fragment needs along the reduction is in several rows. ``ldmatrix``
transposes elements of two bytes; those of four are loaded one by one, the 32 of a warp from different banks.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS, MatrixInstruction
from sartor.codegen.kernels.tensor_cores.staging import chosen, widest_copy
from sartor.codegen.kernels.tensor_cores.tiling import UNIT
from sartor.codegen.mlir.iree_compiler import ir, vector

_LANES_OF_MATRIX, _QUAD = 8, 4
_BANK_UNITS = 8


@dataclass(frozen=True)
class MatrixRows:
    """Rows of the reduction in memory.

    Attributes:
        batch: elements between matrices; 0 if there is one for all batches.
        row: elements between rows.
        depth: rows.
        columns: elements of a row.
    """

    batch: int
    row: int
    depth: int
    columns: int

    def widest(self, element_bytes: int) -> int:
        """Elements that one copy moves; ``RejectionError`` as for ``widest_copy``."""
        return widest_copy((self.columns, self.batch, self.row), element_bytes, "columns")


@dataclass(frozen=True)
class MatrixStages:
    """Stages of the RHS in shared memory: how a thread fills them, and how a warp reads them.

    Attributes:
        source: what is read.
        tile_columns: columns of a tile.
        tile_depth: rows of a stage.
        threads: of the workgroup.
        instruction: multiplies.
        paired: whether fragments of four bytes have two adjacent rows in place of two that are four apart.
        overshoots: whether some stages begin beyond the last row.
    """

    source: MatrixRows
    tile_columns: int
    tile_depth: int
    threads: int
    instruction: MatrixInstruction
    paired: bool = False
    overshoots: bool = False

    @property
    def _unit(self) -> int:
        """Elements of a unit of 16 bytes."""
        return UNIT // self.instruction.bytes

    @property
    def _count(self) -> int:
        return self.source.widest(self.instruction.bytes)

    def check(self) -> None:
        """Make sure that the code can be emitted.

        Raises:
            RejectionError: if it cannot.
        """
        if self.instruction.is_integer:
            raise RejectionError("two activations in 8 bits are not multiplied")
        per_row = self.tile_columns // self._count
        if self.threads % per_row or (self.tile_depth * per_row) % self.threads:
            raise RejectionError("the copies of a stage are not divided equally among threads")

    def start(
        self,
        asm: ThreadAssembler,
        memories: tuple[ir.Value, ir.Value],
        thread: Index,
        origin: tuple[Index, Index, Index],
        target: Index,
    ) -> None:
        """Start the thread's copies of one stage.

        Args:
            asm: emits.
            memories: the matrix and shared memory.
            thread: number of the thread.
            origin: number of the matrix, the stage's first row, and the tile's first column.
            target: offset of the stage in shared memory.
        """
        batch, first_row, first_column = origin
        base = asm.mul(batch, self.source.batch)
        per_row = self.tile_columns // self._count
        start, part = asm.divide(thread, per_row)
        inside = asm.mul(part, self._count)
        column = asm.add(first_column, inside)
        is_column: Condition = (
            True if self.source.columns % self.tile_columns == 0 else asm.less(column, self.source.columns)
        )
        is_whole = self.source.depth % self.tile_depth == 0 and not self.overshoots
        for index in range(self.tile_depth * per_row // self.threads):
            row = asm.add(start, index * (self.threads // per_row))
            number = asm.add(first_row, row)
            is_row: Condition = True if is_whole else asm.less(number, self.source.depth)
            present = asm.all_of(is_row, is_column)
            source = asm.add(base, asm.mul(number, self.source.row), column)
            amount = None if present is True else chosen(asm, present, self._count, 0)
            source = source if present is True else chosen(asm, present, source, 0)
            place = asm.add(target, self.place(asm, row, inside))
            asm.copy_later((memories[0], source), (memories[1], place), self._count, amount)

    def place(self, asm: ThreadAssembler, row: Index, column: Index) -> Index:
        """Where an element of a stage lies: units of a row are exchanged, so that a warp reads from all banks."""
        unit, inside = asm.divide(column, self._unit)
        units = self.tile_columns // self._unit
        if self.instruction.bytes == 2:
            # Eight rows of a matrix are read at once, a unit of each.
            turned, _ = asm.divide(row, max(1, _BANK_UNITS // units))
            _, mask = asm.divide(turned, min(units, _BANK_UNITS))
        else:
            # Four rows are read at once, two units of each: adjacent ones, or each second.
            four, _ = asm.divide(row, 2) if self.paired else (row, 0)
            _, mask = asm.divide(asm.mul(four, 2), _BANK_UNITS)
        return asm.add(asm.mul(row, self.tile_columns), asm.mul(asm.xor(unit, mask), self._unit), inside)

    def fragments(
        self, asm: ThreadAssembler, memory: ir.Value, stage: Index, lane: Index, place: tuple[Index, Index]
    ) -> list[ir.Value]:
        """Fragments of twice 8 columns from row and column ``place`` of the stage at offset ``stage`` on."""
        row, column = place
        if self.instruction.bytes == 2:
            matrix, inside = asm.divide(lane, _LANES_OF_MATRIX)
            eight, half = asm.divide(matrix, 2)
            source = asm.add(row, inside, asm.mul(half, _LANES_OF_MATRIX))
            offset = self.place(asm, source, asm.add(column, asm.mul(eight, COLUMNS)))
            element = self.instruction.element_type
            loaded = asm.load_matrices(memory, asm.add(stage, offset), element, turned=True)
            return [self._half(loaded, index) for index in range(2)]
        group, quad = asm.divide(lane, _QUAD)
        return [
            self._column(asm, memory, stage, (row, quad), asm.add(column, group, index * COLUMNS)) for index in range(2)
        ]

    def _half(self, loaded: ir.Value, which: int) -> ir.Value:
        kind = ir.VectorType.get([2, 2], ir.VectorType(loaded.type).element_type)
        return vector.extract_strided_slice(kind, loaded, [2 * which, 0], [2, 2], [1, 1])

    def _column(
        self, asm: ThreadAssembler, memory: ir.Value, stage: Index, row: tuple[Index, Index], column: Index
    ) -> ir.Value:
        """Two elements of a column, in rows from the first of ``row`` on that its second, 0 to 3, determines."""
        step, distance = (2, 1) if self.paired else (1, _QUAD)
        first = asm.add(row[0], asm.mul(row[1], step))
        parts = [
            asm.load_one(memory, asm.add(stage, self.place(asm, asm.add(first, index * distance), column)))
            for index in range(2)
        ]
        return vector.from_elements(ir.VectorType.get([2, 1], parts[0].type), parts)

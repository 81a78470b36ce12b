"""A matrix product by a weight in blocks of integers, of rows of which one part of several is not zero.

So experts multiply: a row has the parts of all of them, and only that of its own has numbers. A workgroup looks which
parts of its rows are not zero, and a register tile reads the weight's blocks of those that one of its rows has. Rows
may have any numbers, as nothing but products by zeros is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import I64, TensorType
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction, TileWriter
from sartor.codegen.kernels.loops.nest import Starts, Tile
from sartor.codegen.kernels.loops.partition import largest_range, workgroup_range
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_WORD_BITS = 32


@dataclass(frozen=True)
class PartContraction(BlockContraction):
    """The kernel; the workspace is the last buffer.

    Attributes:
        parts: of a row, equally long.
        row_length: rows of the LHS in a row of the nest.
    """

    parts: int
    row_length: int

    @property
    def _most(self) -> int:
        """Most rows of the LHS that a workgroup multiplies."""
        return largest_range(self.nest.rows.output, self.groups[0]) * self.row_length

    @property
    def workspace(self) -> TensorType:
        """Type of what all workgroups keep of their rows: a number for each part."""
        first, second, third = self.groups
        return TensorType((first * second * third * self._most * self.parts,), I64)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        space, read = memories[-1], [memories[position] for position in self.memories]
        begin = asm.mul(asm.add(group[0], asm.mul(group[1], self.groups[0])), self._most * self.parts)
        rows = workgroup_range(asm, self.nest.rows.output, self.groups[0], group[0])
        first = asm.mul(rows[0], self.image.row)

        def look(row: Index) -> None:
            start = asm.add(first, asm.mul(row, self.image.column))
            self._look(asm, (read[0], start), (space, self._slot(asm, begin, row)))

        asm.repeat(0, asm.mul(asm.sub(rows[1], rows[0]), self.row_length), 1, look)

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            writer, totals = TileWriter(self, asm, read, tile), starts()
            row = asm.add(asm.mul(tile.origin.inside, self.row_length), tile.origin.column)
            slots = [self._slot(asm, begin, asm.add(row, line)) for line in range(tile.run.width)]

            def part(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
                return writer.accumulate(carried, self._blocks_of(asm, space, slots, number))

            return asm.loop(0, self.parts, 1, totals, part)

        self.nest.write(asm, memories, group, accumulate)

    def _slot(self, asm: Assembler, begin: Index, row: Index) -> Index:
        """Where it is kept which parts of a row of the workgroup are not zero."""
        return asm.add(begin, asm.mul(row, self.parts))

    def _look(self, asm: Assembler, row: tuple[ir.Value, Index], kept: tuple[ir.Value, Index]) -> None:
        """Keep one for each part of a row that is not zero, and zero for others; each is a memory and an offset."""
        (lhs, start), (space, slot) = row, kept
        length, word = self.blocks.encoding.depth // self.parts, ir.IntegerType.get_signless(_WORD_BITS)
        zeros, zero = asm.splat(ir.IntegerAttr.get(word, 0)), asm.integer(0, _WORD_BITS)

        def part(number: Index) -> None:
            begin = asm.add(start, asm.mul(number, length))

            def joined(place: Index, bits: list[ir.Value]) -> list[ir.Value]:
                numbers = asm.load(lhs, asm.add(begin, place), asm.lanes)
                return [arith.ori(bits[0], arith.bitcast(asm.vector_type(word), numbers))]

            (bits,) = asm.loop(0, length, asm.lanes, [zeros], joined)
            is_present = arith.cmpi(arith.CmpIPredicate.ne, vector.reduction(word, vector.CombiningKind.OR, bits), zero)
            asm.keep(space, asm.add(slot, number), arith.index_castui(ir.IndexType.get(), is_present))

        asm.repeat(0, self.parts, 1, part)

    def _blocks_of(self, asm: Assembler, space: ir.Value, slots: Sequence[Index], part: Index) -> tuple[Index, Index]:
        """The blocks of a part: the first and the end, which are the same if it is zero in all rows of a tile."""
        present, *others = (asm.kept(space, asm.add(slot, part)) for slot in slots)
        for other in others:
            present = asm.maximum(present, other)
        count = self.blocks.encoding.blocks // self.parts
        end = asm.mul(asm.add(part, 1), count)
        return asm.sub(end, asm.mul(present, count)), end

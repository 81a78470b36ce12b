"""A matrix product by a weight in blocks of integers whose LHS is rounded to 8 or 16 bits in each workgroup.

An instruction multiplies four or two codes of a word by as many integers of a row. Sums of a block are integers, which
both scales turn into real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sartor.codegen.ir.layer import I8, TensorType
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import BlockParts, Turn, Unit
from sartor.codegen.kernels.encoded.codes import moved
from sartor.codegen.kernels.encoded.packed_blocks import BYTE_BITS, WORD_BITS, PackedBlocks
from sartor.codegen.kernels.encoded.rounded_rows import RoundedRows
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.loops.nest import NestKernel, Starts, Tile
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.mlir.iree_compiler import arith, ir, vector


@dataclass(frozen=True)
class BlockDots(NestKernel):
    """The kernel.

    Attributes:
        blocks: the weight in memory.
        rows: how rows are rounded.
        memories: positions of the LHS, codes, scales and, if there are any, zero points among the buffers; the
            workspace is the last buffer.
        element: instruction that multiplies groups of integers without a sign by signed ones.
    """

    blocks: PackedBlocks
    rows: RoundedRows
    memories: tuple[int, ...]
    element: DotElement

    @property
    def workspace(self) -> TensorType:
        """Type of the rounded rows of all workgroups."""
        first, second, third = self.groups
        return TensorType((first * second * third * self.rows.elements,), I8)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        begin = asm.mul(asm.add(group[0], asm.mul(group[1], self.groups[0])), self.rows.elements)
        rows = workgroup_range(asm, self.nest.rows.output, self.groups[0], group[0])
        lhs, *parts = (memories[position] for position in self.memories)
        # The weight comes from memory while rows are rounded.
        first, _ = workgroup_range(asm, self.nest.grid.panels, self.groups[1], group[1])
        BlockParts(self.blocks, asm, parts, self.nest.grid.full_panel(first), Turn()).fetch_first()
        self.rows.write(asm, (lhs, memories[-1]), begin, rows)

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            return _TileWriter(self, asm, parts, memories[-1], begin, tile).accumulate(starts())

        self.nest.write(asm, memories, group, accumulate)


class _TileWriter:
    """Emits the sums of a tile."""

    def __init__(
        self, of: BlockDots, asm: Assembler, parts: Sequence[ir.Value], space: ir.Value, begin: Index, tile: Tile
    ) -> None:
        self._of = of
        self._asm = asm
        self._parts = BlockParts(of.blocks, asm, parts, tile.panel, Turn(of.nest.tiles_of_group, tile.ordinal))
        self._space = space
        self._panel = tile.panel
        inside = asm.add(asm.mul(tile.origin.inside, of.rows.columns), tile.origin.column)
        first = asm.add(begin, asm.mul(inside, of.rows.pitch))
        self._rows = [asm.add(first, row * of.rows.pitch) for row in range(tile.run.width)]

    def accumulate(self, totals: list[ir.Value]) -> list[ir.Value]:
        return self._asm.loop(0, self._of.blocks.encoding.blocks, 1, totals, self._block)

    def _block(self, number: Index, totals: list[ir.Value]) -> list[ir.Value]:
        """Add a block's products to the totals ``[rows, vectors]``. Rows end with zeros, whatever codes are there."""
        asm, of = self._asm, self._of
        sums = [of.rows.sum(asm, self._space, row, number) for row in self._rows]
        integers = self._parts.over_units(of.blocks.units, self._starts(sums), partial(self._unit, number))
        return self._reals(number, sums, integers, totals)

    def _starts(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """What integer sums start from: minus the products by the zero point, if all blocks have the same."""
        asm, middle = self._asm, 0 if self._parts.has_points else self._of.blocks.encoding.middle
        factor = asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(WORD_BITS), -middle))
        products = [arith.muli(total, factor) for total in sums]
        return [product for product in products for _ in range(self._panel.vectors)]

    def _unit(self, block: Index, number: Index, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of the units at one position of a block."""
        asm, of = self._asm, self._of.blocks
        units = self._parts.units(asm.add(self._parts.codes(block), asm.mul(number, of.unit_step)))
        words = of.codes_of_unit // of.codes_of_word
        for word in range(words):
            sums = self._word(block, units, asm.add(asm.mul(number, words), word), word, sums)
        return sums

    def _word(
        self, block: Index, units: Sequence[Unit], number: Index, word: int, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Add the products of the codes in a word of each unit, whose number in the block is given, too."""
        together, count = self._of.element.together, self._of.rows.codes_of_field
        for start in range(0, count, together):
            places = range(start, min(start + together, count))
            codes = [[self._fields(unit, word, place) for place in places] for unit in units]
            factors = [[self._factor(row, block, number, place) for place in places] for row in self._rows]
            groups = ([*zip(code, factor, strict=True)] for factor in factors for code in codes)
            sums = [self._of.element.added(self._asm, group, total) for group, total in zip(groups, sums, strict=True)]
        return sums

    def _fields(self, unit: Unit, word: int, place: int) -> ir.Value:
        """The codes at one place of each byte or half of a word, as numbers of that length."""
        asm, bits = self._asm, self._of.blocks.low_bits
        numbers = moved(asm, unit[word], place * bits)
        if bits < self._length:
            numbers = arith.andi(numbers, self._repeated((1 << bits) - 1))
        if self._of.blocks.has_planes:
            byte, part = divmod(place, BYTE_BITS // bits)
            distance = byte * BYTE_BITS + word * (BYTE_BITS // bits) + part - bits
            numbers = arith.ori(numbers, arith.andi(moved(asm, unit[-1], distance), self._repeated(1 << bits)))
        return vector.bitcast(self._group_type, numbers)

    def _repeated(self, bits: int) -> ir.Value:
        """Words with these bits in each byte or half."""
        return _splat(self._asm, sum(bits << start for start in range(0, WORD_BITS, self._length)))

    @property
    def _length(self) -> int:
        """Bits of an integer that is multiplied."""
        return self._of.rows.bytes * BYTE_BITS

    @property
    def _group_type(self) -> ir.Type:
        integer = ir.IntegerType.get_signless(self._length)
        return ir.VectorType.get([self._asm.lanes * WORD_BITS // self._length], integer)

    def _reals(
        self, block: Index, sums: Sequence[ir.Value], integers: Sequence[ir.Value], totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Add a block's integer sums, times the scales of rows and columns, to the totals ``[rows, vectors]``."""
        asm, real = self._asm, self._asm.vector_type(ir.F32Type.get())
        scales, points = self._parts.scales(block), self._parts.stored_points(block)
        shifts = None
        if points is not None:
            shifts = [arith.negf(arith.mulf(*pair)) for pair in zip(points, scales, strict=True)]
        results, places = [], iter(zip(integers, totals, strict=True))
        for row, total in zip(self._rows, sums, strict=True):
            step = self._of.rows.scale(asm, self._space, row, block)
            whole = arith.mulf(arith.sitofp(real, total), step)
            for index, scale in enumerate(scales):
                number, result = next(places)
                result = asm.multiply_add(arith.mulf(arith.sitofp(real, number), step), scale, result)
                results.append(result if shifts is None else asm.multiply_add(whole, shifts[index], result))
        return results

    def _factor(self, row: Index, block: Index, word: Index, place: int) -> ir.Value:
        """The integers of a row that are multiplied at once, repeated."""
        asm, word_type = self._asm, ir.IntegerType.get_signless(WORD_BITS)
        offset = self._of.rows.group(asm, row, block, word, place)
        loaded = asm.load_words(self._space, offset, ir.VectorType.get([1], word_type))
        return vector.bitcast(self._group_type, vector.broadcast(asm.vector_type(word_type), loaded))


def _splat(asm: Assembler, number: int) -> ir.Value:
    return asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(WORD_BITS), number))

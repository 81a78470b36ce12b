"""Loops over a panel's blocks and the words of a block, whose codes become numbers or elements of the weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import BlockParts, Turn, Unit
from sartor.codegen.kernels.encoded.codes import Codes
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import arith, ir


@dataclass(frozen=True)
class Block:
    """A block of rows of the weight while its code is emitted.

    Attributes:
        scales: for each vector of the panel.
        points: the same, minus the origin of codes; None if they are the origin.
        codes: offset of its first word.
        depth: its first row.
        rows: how many rows it has.
    """

    scales: list[ir.Value]
    points: list[ir.Value] | None
    codes: Index
    depth: Index
    rows: int


Add = Callable[[Block, list[ir.Value]], list[ir.Value]]
"""Emits the code of a block, given the carried values; returns the new ones."""

Step = Callable[[list[Unit], Index, int, list[ir.Value]], list[ir.Value]]
"""Emits the code for the codes at a position of units: the unit of each vector, the row of the weight, the position,
and the carried values; returns the new ones."""


class BlockReader:
    """Emits the loops.

    Args:
        blocks: the weight in memory.
        asm: emits the code.
        memories: codes, scales and, if there are any, zero points.
        panel: the panel.
        turn: as of ``BlockParts``.
    """

    def __init__(
        self, blocks: PackedBlocks, asm: Assembler, memories: Sequence[ir.Value], panel: Panel, turn: Turn
    ) -> None:
        self._blocks = blocks
        self._asm = asm
        self._parts = BlockParts(blocks, asm, memories, panel, turn)
        self._panel = panel
        self._numbers = Codes(blocks.encoding.bits, blocks.encoding.middle)

    def over_blocks(
        self, carried: list[ir.Value], add: Add, within: tuple[Index, Index] | None = None
    ) -> list[ir.Value]:
        """Emit ``add`` for all blocks, the last of which may have fewer rows; or from one on to an end, which are whole
        ones."""
        of, asm = self._blocks.encoding, self._asm
        whole, rest = divmod(of.depth, of.block) if within is None else (within[1], 0)
        first = 0 if within is None else within[0]
        carried = asm.loop(first, whole, 1, carried, lambda number, values: add(self._block(number, of.block), values))
        return add(self._block(whole, rest), carried) if rest else carried

    def over_codes(self, block: Block, carried: list[ir.Value], step: Step) -> list[ir.Value]:
        """Emit ``step`` for all rows of a block, unit by unit."""
        asm, blocks = self._asm, self._blocks
        whole, rest = divmod(block.rows, blocks.codes_of_unit)

        def unit(number: Index, codes: int, values: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(block.codes, asm.mul(number, blocks.unit_step))
            depth = asm.add(block.depth, asm.mul(number, blocks.codes_of_unit))
            units = self._parts.units(start)
            for index in range(codes):
                values = step(units, asm.add(depth, index), index, values)
            return values

        def whole_unit(number: Index, values: list[ir.Value]) -> list[ir.Value]:
            return unit(number, blocks.codes_of_unit, values)

        carried = self._parts.over_units(whole, carried, whole_unit)
        return unit(whole, rest, carried) if rest else carried

    def number(self, unit: Unit, index: int) -> ir.Value:
        """The codes at a position of units, minus their origin, in f32."""
        return self._numbers.number(self._asm, unit, index)

    def shifts(self, block: Block) -> list[ir.Value] | None:
        """What is added to codes times scales, for each vector of the panel; None for nothing."""
        if block.points is None:
            return None
        pairs = zip(block.points, block.scales, strict=True)
        return [arith.negf(arith.mulf(point, scale)) for point, scale in pairs]

    def elements(
        self, block: Block, shifts: Sequence[ir.Value] | None, units: Sequence[Unit], index: int
    ) -> list[ir.Value]:
        """The elements of the weight whose codes are at a position of units; ``shifts`` are the block's."""
        codes = [self.number(unit, index) for unit in units]
        if shifts is None:
            return [arith.mulf(code, scale) for code, scale in zip(codes, block.scales, strict=True)]
        triples = zip(codes, block.scales, shifts, strict=True)
        return [self._asm.multiply_add(code, scale, shift) for code, scale, shift in triples]

    def _block(self, number: Index, rows: int) -> Block:
        parts, depth = self._parts, self._asm.mul(number, self._blocks.encoding.block)
        return Block(parts.scales(number), self._points_of(number), parts.codes(number), depth, rows)

    def _points_of(self, block: Index) -> list[ir.Value] | None:
        """Zero points minus the origin of codes; None if they are the origin."""
        asm, origin, points = self._asm, self._numbers.origin(self._asm), self._parts.stored_points(block)
        if points is None:
            missing = self._blocks.encoding.middle - origin
            return [real(asm, missing)] * self._panel.vectors if missing else None
        return [arith.subf(point, real(asm, origin)) for point in points] if origin else points


def real(asm: Assembler, number: float) -> ir.Value:
    """A vector of f32 that repeats a number."""
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), float(number)))

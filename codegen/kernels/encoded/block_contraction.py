"""A matrix product by a weight in blocks of integers, in register tiles; sums are in f32.

With one row, products of a block's codes are summed first, and multiplied by the block's scales. With more, codes
become the weight's elements, each of which is used for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import Turn, Unit
from sartor.codegen.kernels.encoded.block_reader import Block, BlockReader, real
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Accumulate, NestCode, Starts, Tile
from sartor.codegen.mlir.iree_compiler import arith, ir

# Sums that hide the latency of multiply-adds.
_CHAINS = 8


@dataclass(frozen=True)
class BlockContraction(NestCode):
    """The kernel.

    Attributes:
        blocks: the weight in memory.
        image: strides of the LHS, each row a pixel.
        memories: positions of the LHS, codes, scales and, if there are any, zero points among the buffers.
    """

    blocks: PackedBlocks
    image: ImageStrides
    memories: tuple[int, ...]

    def accumulation(self, asm: Assembler, memories: Sequence[ir.Value]) -> Accumulate:
        read = [memories[position] for position in self.memories]

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            return TileWriter(self, asm, read, tile).accumulate(starts())

        return accumulate


class TileWriter:
    """Emits the sums of a tile.

    Args:
        of: the kernel.
        asm: emits the code.
        read: the LHS and the weight's parts.
        tile: the tile.
    """

    def __init__(self, of: BlockContraction, asm: Assembler, read: Sequence[ir.Value], tile: Tile) -> None:
        self._of = of
        self._asm = asm
        self._lhs, *parts = read
        self._reader = BlockReader(of.blocks, asm, parts, tile.panel, Turn(of.nest.tiles_of_group, tile.ordinal))
        self._panel = tile.panel
        origin, image = tile.origin, of.image
        self._first = asm.add(asm.mul(origin.row, image.row), asm.mul(origin.column, image.column))
        self._rows = tile.run.width
        self._loaded: list[ir.Value] = []

    def accumulate(self, totals: list[ir.Value], within: tuple[Index, Index] | None = None) -> list[ir.Value]:
        """Add the products by all blocks, or by those from one on to an end, which are whole, to the totals."""
        add = self._sum_first if self._rows == 1 else self._decode_first
        return self._reader.over_blocks(totals, add, within)

    def _sum_first(self, block: Block, totals: list[ir.Value]) -> list[ir.Value]:
        """Add a block's sums, multiplied by its scales, to the totals of one row."""
        asm, vectors = self._asm, self._panel.vectors
        chains = max(1, _CHAINS // vectors)
        numbers = 1 if block.points is not None else 0

        def step(units: list[Unit], depth: Index, index: int, sums: list[ir.Value]) -> list[ir.Value]:
            (factor,) = self._factors(block, depth, index)
            added, first = list(sums), index % chains * vectors
            for vector, unit in enumerate(units):
                code = self._reader.number(unit, index)
                added[first + vector] = asm.multiply_add(code, factor, added[first + vector])
            if numbers:
                added[-1] = arith.addf(added[-1], factor)
            return added

        sums = self._reader.over_codes(block, [real(asm, 0)] * (chains * vectors + numbers), step)
        results = []
        for vector, total in enumerate(totals):
            *others, last = sums[vector : chains * vectors : vectors]
            for other in others:
                last = arith.addf(last, other)
            if block.points is not None:
                last = arith.subf(last, arith.mulf(block.points[vector], sums[-1]))
            results.append(asm.multiply_add(last, block.scales[vector], total))
        return results

    def _decode_first(self, block: Block, totals: list[ir.Value]) -> list[ir.Value]:
        """Add the products by a block's elements to the totals ``[rows, vectors]``."""
        asm, shifts = self._asm, self._reader.shifts(block)

        def step(units: list[Unit], depth: Index, index: int, sums: list[ir.Value]) -> list[ir.Value]:
            elements = self._reader.elements(block, shifts, units, index)
            factors = self._factors(block, depth, index)
            products = ((factor, element) for factor in factors for element in elements)
            return [asm.multiply_add(*pair, total) for pair, total in zip(products, sums, strict=True)]

        return self._reader.over_codes(block, totals, step)

    def _factors(self, block: Block, depth: Index, index: int) -> list[ir.Value]:
        """An element of each row of the LHS, repeated; ``index`` is the number of the code in its unit.

        Where elements of a vector are repeated at no cost, as many adjacent ones as it has are loaded at once.
        """
        asm, codes = self._asm, self._of.blocks.codes_of_unit
        places = [asm.add(self._first, depth, row * self._of.image.column) for row in range(self._rows)]
        if not asm.indexes or codes % asm.lanes or block.rows % codes:
            return [asm.broadcast(self._lhs, place) for place in places]
        if index % asm.lanes == 0:
            self._loaded = [asm.load(self._lhs, place, asm.lanes) for place in places]
        return [asm.repeated(numbers, index % asm.lanes) for numbers in self._loaded]

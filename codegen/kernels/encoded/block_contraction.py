"""A matrix product by a weight in blocks of integers, in register tiles; sums are in f32.

With one row, products of a block's codes are summed first, and multiplied by the block's scales. With more, codes
become the weight's elements, each of which is used for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.encoded.block_parts import BlockParts
from sartor.codegen.kernels.encoded.codes import Codes
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Accumulate, NestCode, Starts, Tile
from sartor.codegen.mlir.iree_compiler import arith, ir

# Sums that hide the latency of multiply-adds.
_CHAINS = 8
# Words of a block that are written out at once.
_WRITTEN_OUT = 4


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
            writer = _TileWriter(self, asm, read, tile)
            return writer.accumulate(starts())

        return accumulate


@dataclass(frozen=True)
class _Block:
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


Step = Callable[[_Block, list[ir.Value], Index, int, list[ir.Value]], list[ir.Value]]
"""Emits the products by the codes at a position of words: the block, the words of each vector, the row of the weight,
the position, and sums; returns the new sums."""


class _TileWriter:
    """Emits the sums of a tile."""

    def __init__(self, of: BlockContraction, asm: Assembler, read: Sequence[ir.Value], tile: Tile) -> None:
        self._of = of
        self._asm = asm
        self._lhs, *parts = read
        self._parts = BlockParts(of.blocks, asm, parts, tile.panel)
        self._panel = tile.panel
        encoding = of.blocks.encoding
        self._numbers = Codes(encoding.bits, encoding.middle)
        origin, image = tile.origin, of.image
        self._first = asm.add(asm.mul(origin.row, image.row), asm.mul(origin.column, image.column))
        self._rows = tile.run.width

    def accumulate(self, totals: list[ir.Value]) -> list[ir.Value]:
        of, asm = self._of.blocks.encoding, self._asm
        add = self._sum_first if self._rows == 1 else self._decode_first
        whole, rest = divmod(of.depth, of.block)

        def every(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            return add(self._block(number, of.block), carried)

        totals = asm.loop(0, whole, 1, totals, every)
        return add(self._block(whole, rest), totals) if rest else totals

    def _block(self, number: Index, rows: int) -> _Block:
        parts, depth = self._parts, self._asm.mul(number, self._of.blocks.encoding.block)
        return _Block(parts.scales(number), self._points_of(number), parts.codes(number), depth, rows)

    def _points_of(self, block: Index) -> list[ir.Value] | None:
        """Zero points minus the origin of codes; None if they are the origin."""
        asm, origin, points = self._asm, self._numbers.origin(self._asm), self._parts.stored_points(block)
        if points is None:
            missing = self._of.blocks.encoding.middle - origin
            return [_real(asm, missing)] * self._panel.vectors if missing else None
        return [arith.subf(point, _real(asm, origin)) for point in points] if origin else points

    def _sum_first(self, block: _Block, totals: list[ir.Value]) -> list[ir.Value]:
        """Add a block's sums, multiplied by its scales, to the totals of one row."""
        asm, vectors = self._asm, self._panel.vectors
        chains = max(1, _CHAINS // vectors)
        numbers = 1 if block.points is not None else 0

        def step(of: _Block, words: list[ir.Value], depth: Index, index: int, sums: list[ir.Value]) -> list[ir.Value]:
            factor = self._factor(0, depth)
            added, first = list(sums), index % chains * vectors
            for vector, word in enumerate(words):
                code = self._numbers.number(asm, word, index)
                added[first + vector] = asm.multiply_add(code, factor, added[first + vector])
            if numbers:
                added[-1] = arith.addf(added[-1], factor)
            return added

        found = self._words(block, [_real(asm, 0)] * (chains * vectors + numbers), step)
        results = []
        for vector, total in enumerate(totals):
            *others, last = found[vector : chains * vectors : vectors]
            for other in others:
                last = arith.addf(last, other)
            if block.points is not None:
                last = arith.subf(last, arith.mulf(block.points[vector], found[-1]))
            results.append(asm.multiply_add(last, block.scales[vector], total))
        return results

    def _decode_first(self, block: _Block, totals: list[ir.Value]) -> list[ir.Value]:
        """Add the products by a block's elements to the totals ``[rows, vectors]``."""
        asm = self._asm
        shifts = None
        if block.points is not None:
            pairs = zip(block.points, block.scales, strict=True)
            shifts = [arith.negf(arith.mulf(point, scale)) for point, scale in pairs]

        def step(of: _Block, words: list[ir.Value], depth: Index, index: int, sums: list[ir.Value]) -> list[ir.Value]:
            codes = [self._numbers.number(asm, word, index) for word in words]
            if shifts is None:
                elements = [arith.mulf(code, scale) for code, scale in zip(codes, of.scales, strict=True)]
            else:
                triples = zip(codes, of.scales, shifts, strict=True)
                elements = [asm.multiply_add(code, scale, shift) for code, scale, shift in triples]
            factors = [self._factor(row, depth) for row in range(self._rows)]
            products = ((factor, element) for factor in factors for element in elements)
            return [asm.multiply_add(*pair, total) for pair, total in zip(products, sums, strict=True)]

        return self._words(block, totals, step)

    def _words(self, block: _Block, sums: list[ir.Value], step: Step) -> list[ir.Value]:
        """Emit the steps of a block, word by word."""
        asm, blocks = self._asm, self._of.blocks
        whole, rest = divmod(block.rows, blocks.codes_of_word)
        written = next(count for count in range(min(_WRITTEN_OUT, max(whole, 1)), 0, -1) if whole % count == 0)

        def word(number: Index, codes: int, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(block.codes, asm.mul(number, blocks.word_step))
            depth = asm.add(block.depth, asm.mul(number, blocks.codes_of_word))
            words = self._parts.words(start)
            for index in range(codes):
                carried = step(block, words, asm.add(depth, index), index, carried)
            return carried

        def every(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            for each in range(written):
                carried = word(asm.add(number, each), blocks.codes_of_word, carried)
            return carried

        sums = asm.loop(0, whole, written, sums, every)
        return word(whole, rest, sums) if rest else sums

    def _factor(self, row: int, depth: Index) -> ir.Value:
        """An element of the LHS, repeated."""
        asm = self._asm
        return asm.broadcast(self._lhs, asm.add(self._first, depth, row * self._of.image.column))


def _real(asm: Assembler, number: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), float(number)))

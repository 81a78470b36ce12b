"""Converts integer sums over quantised rows to real numbers, and adds the products of their outliers' high bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import TOP_BITS, DotProduct
from sartor.codegen.kernels.loops.nest import Nest, Tile
from sartor.codegen.kernels.vector.row_scales import WORD_BYTES, Range, RowScales
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_BYTE, _WORD = 8, 32
_BIAS = 128


@dataclass(frozen=True)
class RowSums:
    """Sums of the products of a tile, before and after the low bits are multiplied.

    Attributes:
        rows: how rows are quantised.
        multiplier: multiplies groups of numbers without a sign by signed ones.
        step: bytes between groups of channels of the filters.
        vector: bytes between vectors of a panel.
        numbers: bytes of a panel before the scales.
        panel: bytes of a panel.
    """

    rows: RowScales
    multiplier: DotProduct
    step: int
    vector: int
    numbers: int
    panel: int

    def starts(self, asm: Assembler, nest: Nest, memories: tuple[ir.Value, ir.Value], tile: Tile) -> list[ir.Value]:
        """Emit the products of high bits, from which the sums of a tile start.

        The instruction multiplies numbers without a sign by signed ones. Here high bits are signed, so 128 is added to
        the filters, and 128 times the sum of a row's high bits is too much.

        Args:
            asm: emits the code.
            nest: the loops around the tile.
            memories: the workspace and the filters.
            tile: the tile, whose batch is the number of the workgroup and whose row counts from its first.
        """
        space, zero = memories[0], _splat(asm, 0)
        workgroup, first = self._first(asm, tile)
        vectors, pixels = range(tile.panel.vectors), range(tile.run.width)

        def every(number: Index, totals: list[ir.Value]) -> list[ir.Value]:
            group = self.rows.outlier(asm, space, workgroup, number)
            filters = [
                self._biased(asm, memories[1], tile, group, vectors_of_filters) for vectors_of_filters in vectors
            ]
            loaded = []
            for pixel in pixels:
                offset = self.rows.high_bits(asm, workgroup, asm.add(first, pixel), group)
                high = self.multiplier.repeated(asm, space, offset)
                sums = totals[pixel * len(vectors) : (pixel + 1) * len(vectors)]
                pairs = zip(filters, sums, strict=True)
                loaded += [self.multiplier.multiplied(asm, pixel_value, high, total) for pixel_value, total in pairs]
            return loaded

        count = self.rows.outliers(asm, space, workgroup)
        totals = asm.loop(0, count, 1, [zero] * len(vectors) * len(pixels), every)
        more = [self.rows.high_sum(asm, space, workgroup, asm.add(first, pixel)) for pixel in pixels]
        excess = [arith.muli(added, _splat(asm, _BIAS)) for added in more for _ in vectors]
        return [
            arith.shli(arith.subi(total, correction), _splat(asm, _BYTE))
            for total, correction in zip(totals, excess, strict=True)
        ]

    def reals(
        self,
        asm: Assembler,
        nest: Nest,
        memories: tuple[ir.Value, ir.Value],
        tile: Tile,
        sums: Sequence[ir.Value],
        starts: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Emit the real values of the sums of a tile, with the layer's initial values added.

        Args:
            asm, nest, memories, tile: as for ``starts``.
            sums: vectors of integers.
            starts: the layer's initial values, vectors of f32.
        """
        workgroup, first = self._first(asm, tile)
        real = asm.vector_type(ir.F32Type.get())
        scales, weights = (self._of_channels(asm, nest, memories[1], tile, entry) for entry in range(2))
        ranges: dict[int, Range] = {}
        reals_of_vectors = []
        for tile_vector, total, start in zip(tile.tile_vectors(nest.lanes), sums, starts, strict=True):
            if tile_vector.column not in ranges:
                row = asm.add(first, tile_vector.column)
                ranges[tile_vector.column] = self.rows.range_of(asm, memories[0], workgroup, row)
            of = ranges[tile_vector.column]
            low = arith.mulf(of.low, weights[tile_vector.vector])
            number = asm.multiply_add(arith.sitofp(real, total), of.step, low)
            reals_of_vectors.append(asm.multiply_add(number, scales[tile_vector.vector], start))
        return reals_of_vectors

    def _first(self, asm: Assembler, tile: Tile) -> tuple[Index, Index]:
        """The workgroup's number and the tile's first row in it."""
        origin = tile.origin
        return origin.batch, asm.add(asm.mul(origin.row, self.rows.columns), origin.column)

    def _biased(self, asm: Assembler, filters: ir.Value, tile: Tile, group: Index, number: int) -> ir.Value:
        """Filters of a vector of channels for a group of the depth, plus 128."""
        offset = asm.add(asm.mul(tile.panel.index, self.panel), asm.mul(group, self.step), number * self.vector)
        words = asm.load_words(filters, offset, asm.vector_type(ir.IntegerType.get_signless(_WORD)))
        kind = ir.VectorType.get([asm.lanes * WORD_BYTES], ir.IntegerType.get_signless(_BYTE))
        return vector.bitcast(kind, arith.xori(words, _splat(asm, TOP_BITS)))

    def _of_channels(self, asm: Assembler, nest: Nest, filters: ir.Value, tile: Tile, entry: int) -> list[ir.Value]:
        """Scales (entry 0) or sums of integers (1) of the channels of a tile's vectors."""
        size = nest.tiling.vectors * nest.lanes * WORD_BYTES
        start = asm.add(asm.mul(tile.panel.index, self.panel), self.numbers + entry * size)
        offsets = [asm.add(start, number * nest.lanes * WORD_BYTES) for number in range(tile.panel.vectors)]
        return [asm.load_floats(filters, offset) for offset in offsets]


def _splat(asm: Assembler, number: int) -> ir.Value:
    return asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(_WORD), number))

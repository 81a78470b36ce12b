"""The epilogue of a block: integer sums are scaled, elementwise ops follow, results are stored."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.kernels.amx.contraction import TileContraction
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.emit.rounded_numbers import dequantised
from sartor.codegen.kernels.isa.amx import ROWS
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.mlir.iree_compiler import arith, ir

_FLOAT_BYTES = 4
_WORD = 32
# Vectors of 16 numbers, stored in two bytes each, in a line of the cache.
_VECTORS_OF_LINE = 2


@dataclass(frozen=True)
class Block:
    """A block of tiles while its code is emitted.

    Attributes:
        panel: its channels.
        row: first row.
        column: first column.
        ordinal: its number among the blocks of a panel.
        fresh: first column that no previous block has computed.
    """

    panel: Panel
    row: Index
    column: Index
    ordinal: Index
    fresh: Index


class Dequantisation(NamedTuple):
    """What integer sums stand for, ``(sum + shift) * factor``, as vectors of channels."""

    factor: ir.Value
    shift: ir.Value


class TileFinish:
    """Emits the epilogue of a block.

    Args:
        of: the contraction.
        asm: emits the code.
        memories: all buffers.
        batch: index of the batch.
        sums: memory of a block's sums, tile by tile.
    """

    def __init__(
        self, of: TileContraction, asm: Assembler, memories: Sequence[ir.Value], batch: Index, sums: ir.Value
    ) -> None:
        self._of, self._asm, self._memories = of, asm, memories
        self._batch, self._sums = batch, sums

    def write(self, block: Block, first_pixel: Index, end: Index | None) -> None:
        """Emit the epilogue of some pixels of each tile of a block, up to the stores; of a single pixel if ``end`` is
        None."""
        of, asm = self._of, self._asm
        first = asm.mul(block.panel.index, of.tiling.vectors)
        counts = [block.panel.count(index, of.lanes) for index in range(block.panel.vectors)]
        origin = TileOrigin(self._batch, block.row, block.column, first)
        starts = self._starts(origin, counts) if of.epilogue.starts_alike else None
        weights = self._weights(block.panel) if of.element.is_quantised else None

        def every(pixel: Index) -> None:
            # All loads come before the stores, or they would wait for stores to addresses with the same low bits.
            finished = []
            for number, origin in enumerate(self._origins(block, pixel)):
                totals = self._totals(number, pixel, weights, starts or self._starts(origin, counts))
                finished.append((origin, self._results(origin, totals, counts)))
            for number, (origin, values) in enumerate(finished):
                store = functools.partial(self._store, origin, values, counts)
                asm.when(self._is_fresh(block, number, origin), store)

        if end is None:
            every(first_pixel)
        else:
            asm.repeat(first_pixel, end, 1, every)

    def fetch(self, block: Block, pixel: Index) -> None:
        """Prefetch the operands of the epilogue, and the result, at a pixel of each tile of a block."""
        of, asm = self._of, self._asm
        images = [image for image in of.epilogue.images if image.memory != of.tied]
        for origin in self._origins(block, pixel):
            for access in (*images, of.result):
                for index in range(0, block.panel.vectors, _VECTORS_OF_LINE):
                    offset = origin.offset(asm, access, TileVector(0, 0, index, of.lanes))
                    asm.prefetch(self._memories[access.memory], offset, is_written=access == of.result)

    def _origins(self, block: Block, pixel: Index) -> list[TileOrigin]:
        """The position of a pixel of each tile of a block in the result."""
        of, asm = self._of, self._asm
        first = asm.mul(block.panel.index, of.tiling.vectors)
        return [
            TileOrigin(self._batch, asm.add(block.row, line), asm.add(block.column, pixel, of.offsets[tile]), first)
            for line, tile in of.tile_positions
        ]

    def _starts(self, origin: TileOrigin, counts: Sequence[int]) -> list[ir.Value]:
        """The initial values of a pixel's sums."""
        of, asm = self._of, self._asm
        tile_vectors = [TileVector(0, 0, number_of_vector, count) for number_of_vector, count in enumerate(counts)]
        return [of.epilogue.start(asm, self._memories, origin, tile_vector) for tile_vector in tile_vectors]

    def _weights(self, panel: Panel) -> list[Dequantisation]:
        """Shift and factor that dequantise sums; the shift is minus the zero point times the sum of the filters."""
        of, asm = self._of, self._asm
        filters, scale = self._memories[of.memories[1]], asm.scale_of(self._memories[of.memories[0]])
        start = asm.add(asm.mul(panel.index, of.panel), of.numbers)
        words = asm.vector_type(ir.IntegerType.get_signless(_WORD))
        shift, dequantisations = arith.fptosi(words, arith.negf(scale.zero)), []
        for index in range(panel.vectors):
            here = asm.add(start, index * of.lanes * _FLOAT_BYTES)
            step = asm.load_floats(filters, here)
            total = asm.load_floats(filters, asm.add(here, of.tiling.vectors * of.lanes * _FLOAT_BYTES))
            dequantisations.append(
                Dequantisation(arith.mulf(step, scale.step), arith.muli(arith.fptosi(words, total), shift))
            )
        return dequantisations

    def _totals(
        self, number: int, pixel: Index, weights: Sequence[Dequantisation] | None, starts: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """The result of the layer's root at a pixel of a tile of the block."""
        of, asm = self._of, self._asm
        totals = []
        for number_of_vector, start in enumerate(starts):
            tile = number * of.tiling.vectors + number_of_vector
            total = asm.load(self._sums, asm.add(tile * ROWS * of.lanes, asm.mul(pixel, of.lanes)), of.lanes)
            if weights is None:
                totals.append(asm.sum_of(total, start))
                continue
            whole = arith.addi(total, weights[number_of_vector].shift)
            totals.append(dequantised(asm, whole, start, weights[number_of_vector].factor))
        return totals

    def _results(self, origin: TileOrigin, totals: Sequence[ir.Value], counts: Sequence[int]) -> list[ir.Value]:
        tile_vectors = [TileVector(0, 0, place, count) for place, count in enumerate(counts)]
        return [
            self._of.epilogue.finish(self._asm, self._memories, origin, tile_vector, total)
            for tile_vector, total in zip(tile_vectors, totals, strict=True)
        ]

    def _is_fresh(self, block: Block, number: int, origin: TileOrigin) -> Condition:
        """Whether to store a pixel: not if a previous block computed it and overwrote the operand that this one
        reads."""
        of, asm = self._of, self._asm
        if of.tied is None or not of.overlaps:
            return True
        _, tile = of.tile_positions[number]
        begin = tile * of.tiling.pixels
        # Tiles of a block overlap only if the block is the entire row.
        first = asm.add(block.fresh, begin if of.offsets[tile] < begin else 0)
        return asm.less(asm.sub(first, 1), origin.column)

    def _store(self, origin: TileOrigin, values: Sequence[ir.Value], counts: Sequence[int]) -> None:
        of, asm = self._of, self._asm
        for place, (value, count) in enumerate(zip(values, counts, strict=True)):
            offset = origin.offset(asm, of.result, TileVector(0, 0, place, count))
            asm.store(value, self._memories[of.result.memory], offset, count)

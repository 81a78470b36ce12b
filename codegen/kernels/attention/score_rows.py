"""Rows of scores in the registers of a warp: what follows their products, and the softmax of what was seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.special_functions import exp
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.tensor_cores.instructions import COLUMNS
from sartor.codegen.kernels.tensor_cores.results import Sums
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_QUAD, _PAIR, _HALVES = 4, 2, 2
_HALF_ROWS = 8


@dataclass(frozen=True)
class ScoreRows:
    """The ops around the first product, on the sums of a warp.

    Attributes:
        asm: emits.
        epilogue: of the first product.
        memories: its buffers.
        extents: rows and columns of all scores.
        rows: of a workgroup, whose last warps may have none that exist.
        batch: index of the batch.
        lane: number of the thread in its warp.
    """

    asm: ThreadAssembler
    epilogue: Epilogue
    memories: Sequence[ir.Value]
    extents: tuple[int, int]
    rows: int
    batch: Index
    lane: Index

    def finish(self, sums: Sums, first: tuple[Index, Index], *, is_whole: bool) -> Sums:
        """Scores of sums from row and column ``first`` on; minus infinity beyond the last column.

        Args:
            sums: of 16 rows, by 8 columns.
            first: row and column.
            is_whole: whether all columns exist.
        """
        asm = self.asm
        group, quad = asm.divide(self.lane, _QUAD)
        finished = []
        for number, fragment in enumerate(sums):
            column = asm.add(first[1], asm.mul(quad, _PAIR), number * COLUMNS)
            inside = column if is_whole else asm.minimum(column, max(0, self.extents[1] - _PAIR))
            for half in range(_HALVES):
                row = asm.add(first[0], group, half * _HALF_ROWS)
                if self.extents[0] % self.rows:
                    row = asm.minimum(row, self.extents[0] - 1)
                score = self._score(vector.extract(fragment, [], [half]), row, inside)
                fragment = vector.insert(score if is_whole else self._existing(score, column), fragment, [], [half])
            finished.append(fragment)
        return finished

    def _existing(self, scores: ir.Value, column: Index) -> ir.Value:
        """A pair of scores from a column on, minus infinity where there is no column."""
        asm = self.asm
        nothing = _splat(asm, -math.inf)
        if self.extents[1] % _PAIR == 0:
            return arith.select(self._exists(column), scores, nothing)
        bits = [self._exists(asm.add(column, index)) for index in range(_PAIR)]
        return arith.select(vector.from_elements(ir.VectorType.get([_PAIR], bits[0].type), bits), scores, nothing)

    def _exists(self, column: Index) -> ir.Value:
        exists = self.asm.less(column, self.extents[1])
        return self.asm.integer(int(exists), 1) if isinstance(exists, bool) else exists

    def _score(self, total: ir.Value, row: Index, column: Index) -> ir.Value:
        vectors, _ = self.asm.divide(column, _PAIR)
        origin, tile = TileOrigin(self.batch, 0, row, vectors), TileVector(0, 0, 0, _PAIR)
        start = self.epilogue.start(self.asm, self.memories, origin, tile)
        return self.epilogue.finish(self.asm, self.memories, origin, tile, arith.addf(total, start))


@dataclass(frozen=True)
class SoftmaxRows:
    """The largest scores so far, and a thread's part of the sums of exponentials, of the two rows of each lane."""

    asm: ThreadAssembler
    count: int = 2 * _HALVES

    def start(self) -> list[ir.Value]:
        """Before any score: maxima, then sums, each for two rows."""
        return [_splat(self.asm, -math.inf)] * _HALVES + [_splat(self.asm, 0.0)] * _HALVES

    def add(self, state: list[ir.Value], scores: Sums, sums: list[ir.Value]) -> tuple[list[ir.Value], Sums, Sums]:
        """Take a block of scores in.

        Args:
            state: of rows before the block.
            scores: of the block.
            sums: products of earlier probabilities with values, which are rescaled.

        Returns:
            The state, the block's probabilities before they are divided by their sum, and the rescaled sums.
        """
        asm = self.asm
        maxima, totals = state[:_HALVES], state[_HALVES:]
        for half in range(_HALVES):
            rows = [vector.extract(score, [], [half]) for score in scores]
            largest = maxima[half]
            for row in rows:
                largest = arith.maximumf(largest, row)
            largest = self._across(largest, arith.maximumf)
            # Rows of which all scores are minus infinity so far have no sum yet, rather than one of NaN.
            none = arith.cmpf(arith.CmpFPredicate.OEQ, largest, _splat(asm, -math.inf))
            base = arith.select(none, _splat(asm, 0.0), largest)
            factor = exp(asm, arith.subf(maxima[half], base))
            total = arith.mulf(totals[half], factor)
            for index, row in enumerate(rows):
                power = exp(asm, arith.subf(row, base))
                total = arith.addf(total, power)
                scores[index] = vector.insert(power, scores[index], [], [half])
            sums = [
                vector.insert(arith.mulf(vector.extract(sum_of_row, [], [half]), factor), sum_of_row, [], [half])
                for sum_of_row in sums
            ]
            maxima[half], totals[half] = largest, total
        return [*maxima, *totals], scores, sums

    def finished(self, state: list[ir.Value], sums: Sums) -> Sums:
        """Sums divided by those of all exponentials."""
        for half in range(_HALVES):
            total = self._across(state[_HALVES + half], arith.addf)
            sums = [
                vector.insert(arith.divf(vector.extract(sum_of_row, [], [half]), total), sum_of_row, [], [half])
                for sum_of_row in sums
            ]
        return sums

    def _across(self, pair: ir.Value, combine: Combine) -> ir.Value:
        """A fold of a row, whose numbers four lanes have in pairs, repeated in a vector."""
        asm = self.asm
        one = combine(vector.extract(pair, [], [0]), vector.extract(pair, [], [1]))
        for distance in (1, 2):
            one = combine(one, asm.from_lane(one, distance))
        return vector.broadcast(pair.type, one)


class Combine(Protocol):
    """Combines two numbers."""

    def __call__(self, one: ir.Value, other: ir.Value) -> ir.Value: ...


def _splat(asm: ThreadAssembler, number: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))

"""Attention by blocks of keys, whose softmax is corrected as larger scores are seen.

A workgroup computes some tens of queries of a head. It copies a block of keys to a panel, in which keys are adjacent,
and then computes, for a tile of a few queries after the other, their scores with these keys, the exponentials, and the
sums of the values by them. What was summed before is scaled down where a block has a larger score than all before it
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al., FlashAttention, 2022). So keys and
values are read from memory once for all queries of a workgroup, and its memory does not depend on how many there are.
Keys at the end of a block that a mask hides from all queries of a tile are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import most_of
from sartor.codegen.kernels.attention.attention_kernel import FLOAT_BYTES, AttentionKernel
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.attention.hidden_keys import HiddenKeys, may_hide_keys
from sartor.codegen.kernels.attention.key_panels import KeyPanel
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.special_functions import exp
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.mlir.iree_compiler import arith, ir

# Worker threads have stacks of 128 KiB.
_MOST_SCRATCH_BYTES = 60 << 10
# Floats of memory for each query, to find what is hidden from it.
_PER_QUERY = 3
# Larger blocks correct sums less often.
_MOST_BLOCK = 128

MOST_QUERIES = 64
"""Keys are copied once for at most so many queries."""


@dataclass(frozen=True)
class BlockedAttention(AttentionKernel):
    """Scores of some tens of queries with blocks of keys; ``workgroups`` partition the steps."""

    @property
    def columns(self) -> int:
        """Elements of a value in whole vectors."""
        return -(-self.form.columns // self.lanes) * self.lanes

    @property
    def queries(self) -> int:
        """Most queries of a step, in whole tiles: as many as there are, or as leave memory for the smallest block."""
        per_query = 2 * self.lanes + self.columns + _PER_QUERY
        fitting = (_MOST_SCRATCH_BYTES // FLOAT_BYTES - self.lanes * self._per_key) // per_query
        most = -(-most_of(self.form.extents[2]) // self.rows) * self.rows
        return min(MOST_QUERIES, fitting, most) // self.rows * self.rows

    @property
    def block(self) -> int:
        """Keys of a panel, in whole vectors."""
        left = _MOST_SCRATCH_BYTES // FLOAT_BYTES - self.queries * (2 * self.lanes + self.columns + _PER_QUERY)
        most = -(-most_of(self.form.extents[3]) // self.lanes) * self.lanes
        return min(_MOST_BLOCK, left // self._per_key, most) // self.lanes * self.lanes

    @property
    def _per_key(self) -> int:
        """Elements of a workgroup's memory for each key of a panel."""
        return self.form.depth + self.rows

    def check(self) -> None:
        if self.queries <= 0 or self.block <= 0:
            raise RejectionError(f"keys of {self.form.depth} elements do not fit a workgroup")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        scratch = _Scratch.of(asm, self)
        batches, heads, queries, _ = map(asm.size, self.form.extents)
        steps = asm.divide(asm.add(queries, self.queries - 1), self.queries)[0]
        total = asm.times(asm.times(batches, heads), steps)
        # Without queries there is no step, but the numbers below are computed all the same.
        steps = asm.maximum(1, steps)
        # All steps of a head have about as many queries, in whole tiles.
        share = asm.divide(asm.add(queries, asm.sub(steps, 1)), steps)[0]
        share = asm.mul(asm.divide(asm.add(share, self.rows - 1), self.rows)[0], self.rows)

        def step(index: Index) -> None:
            rest, number = asm.divide(index, steps)
            batch, head = asm.divide(rest, heads)
            first = asm.times(number, share)
            count = asm.minimum(share, asm.sub(queries, first))
            StepWriter(self, HeadCode.of(asm, self.form, memories, batch, head), scratch, (first, count)).write()

        asm.repeat(*workgroup_range(asm, total, self.workgroups, group[0]), 1, step)


class _Scratch(NamedTuple):
    """The memory of a workgroup.

    Attributes:
        panel: keys.
        scores: of the queries of a tile with the keys of the panel; then their exponentials.
        largest: the largest score of each query so far, in all elements of a vector.
        sums: for each query a vector, which adds up to the sum of its exponentials.
        totals: for each query the sum of the values by exponentials.
        bounds: of the products of each query, where keys may be hidden.
        seen: there, too, how many keys of a block each tile takes.
    """

    panel: ir.Value
    scores: ir.Value
    largest: ir.Value
    sums: ir.Value
    totals: ir.Value
    bounds: ir.Value
    seen: ir.Value

    @staticmethod
    def of(asm: Assembler, kernel: BlockedAttention) -> _Scratch:
        """The memory that a kernel needs."""
        vectors = kernel.queries * kernel.lanes
        extents = (
            kernel.form.depth * kernel.block,
            kernel.rows * kernel.block,
            *(vectors, vectors, kernel.queries * kernel.columns, kernel.queries),
        )
        places = asm.scratch(kernel.queries, ir.IntegerType.get_signless(64))
        panel, scores, largest, sums, totals, bounds = (asm.scratch(extent, ir.F32Type.get()) for extent in extents)
        return _Scratch(panel, scores, largest, sums, totals, bounds, places)


class StepWriter:
    """Emits the code for some queries of a head."""

    def __init__(self, of: BlockedAttention, head: HeadCode, scratch: _Scratch, queries: tuple[Index, Index]) -> None:
        self._of, self._asm, self._head, self._scratch = of, head.asm, head, scratch
        self._first, self._count = queries
        self._panel = KeyPanel(head, scratch.panel, of.block)
        self._hidden = HiddenKeys.of(head, scratch.bounds) if may_hide_keys(of.form) else None

    def write(self) -> None:
        """Emit all blocks of keys."""
        asm, block, keys = self._asm, self._of.block, self._head.keys
        self._each_tile(self._begin)

        def take(first: Index) -> None:
            is_whole = isinstance(keys, int) and keys % block == 0
            count = block if is_whole else asm.minimum(block, asm.sub(keys, first))
            if self._hidden is None:
                self._panel.fill(first, count)
                self._each_tile(lambda tile: self._take(tile, first, count))
            else:
                self._take_seen(self._hidden, first, count)

        asm.repeat(0, keys, block, take)
        self._each_tile(self._finish)

    def _take_seen(self, hidden: HiddenKeys, first: Index, count: Index) -> None:
        """Take the keys of a block that are not hidden into the sums of all queries."""
        asm, scratch, lanes = self._asm, self._scratch, self._of.lanes

        def find(tile: Index, most: list[ir.Value]) -> list[ir.Value]:
            places = [asm.add(tile, row) for row in range(self._of.rows)]
            before = [asm.load(scratch.largest, asm.mul(place, lanes), lanes) for place in places]
            seen = hidden.seen([*zip(places, self._rows(tile), strict=True)], before, first, count)
            asm.keep(scratch.seen, tile, seen)
            return [asm.value(asm.maximum(most[0], seen))]

        (most,) = asm.loop(0, self._count, self._of.rows, [asm.value(0)], find)
        self._panel.fill(first, most)

        def take(tile: Index) -> None:
            seen = asm.kept(scratch.seen, tile)
            asm.when(asm.less(0, seen), lambda: self._take(tile, first, seen))

        self._each_tile(take)

    def _each_tile(self, body: Callable[[Index], None]) -> None:
        self._asm.repeat(0, self._count, self._of.rows, body)

    @property
    def _parts(self) -> int:
        """Vectors of a value."""
        return self._of.columns // self._of.lanes

    def _rows(self, tile: Index) -> list[Index]:
        """The queries of a tile that begins at ``tile``; the last one is repeated for those beyond it."""
        asm = self._asm
        last = asm.sub(asm.size(self._of.form.extents[2]), 1)
        return [asm.minimum(asm.add(self._first, tile, row), last) for row in range(self._of.rows)]

    def _begin(self, tile: Index) -> None:
        asm, lanes, scratch = self._asm, self._of.lanes, self._scratch
        for row in range(self._of.rows):
            query = asm.add(tile, row)
            asm.store(self._head.splat(-math.inf), scratch.largest, asm.mul(query, lanes), lanes)
            asm.store(self._head.splat(0.0), scratch.sums, asm.mul(query, lanes), lanes)
            for offset in self._places(query):
                asm.store(self._head.splat(0.0), scratch.totals, offset, lanes)
        if self._hidden is not None:
            for row, query in enumerate(self._rows(tile)):
                self._hidden.bound(asm.add(tile, row), query)

    def _places(self, query: Index) -> list[Index]:
        """Where the vectors of a query's total are."""
        start = self._asm.mul(query, self._of.columns)
        return [self._asm.add(start, part * self._of.lanes) for part in range(self._parts)]

    def _take(self, tile: Index, first: Index, count: Index) -> None:
        """Take the panel's keys into the sums of a tile's queries."""
        asm, scratch, head = self._asm, self._scratch, self._head
        queries = [asm.add(tile, row) for row in range(self._of.rows)]
        seen = self._scores(self._rows(tile), first, count)
        bases, factors = self._rescaled([asm.mul(query, asm.lanes) for query in queries], seen)
        sums = [asm.load(scratch.sums, asm.mul(query, asm.lanes), asm.lanes) for query in queries]
        sums = self._exponentials(count, bases, [*map(arith.mulf, sums, factors)])
        totals = []
        for query, total, factor in zip(queries, sums, factors, strict=True):
            asm.store(total, scratch.sums, asm.mul(query, asm.lanes), asm.lanes)
            parts = [asm.load(scratch.totals, part, asm.lanes) for part in self._places(query)]
            totals += [arith.mulf(part, factor) for part in parts]
        starts = [row * self._of.block for row in range(self._of.rows)]
        totals = head.mixed((first, count), (scratch.scores, starts), totals)
        places = [part for query in queries for part in self._places(query)]
        for part, place in zip(totals, places, strict=True):
            asm.store(part, scratch.totals, place, asm.lanes)

    def _rescaled(self, places: Sequence[Index], scores: Sequence[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Take the largest scores of queries into account, by lanes; returns for each query what to subtract from its
        scores, and the factor of earlier sums.

        Args:
            places: of each query's largest score in memory.
            scores: the largest of each.
        """
        asm, memory, head = self._asm, self._scratch.largest, self._head
        before = [asm.load(memory, place, asm.lanes) for place in places]
        largest = [head.reduced(score, arith.maximumf) for score in map(arith.maximumf, before, scores)]
        bases = []
        for place, most in zip(places, largest, strict=True):
            asm.store(most, memory, place, asm.lanes)
            # Rows of which all scores are minus infinity so far have no sum yet, rather than one of NaN.
            is_none = arith.cmpf(arith.CmpFPredicate.OEQ, most, head.splat(-math.inf))
            bases.append(arith.select(is_none, head.splat(0.0), most))
        return bases, [exp(asm, difference) for difference in map(arith.subf, before, bases)]

    def _scores(self, rows: Sequence[Index], first: Index, count: Index) -> list[ir.Value]:
        """Emit the scores of queries with the panel's keys; returns the largest of each by lanes."""
        asm, lanes, vectors = self._asm, self._of.lanes, self._of.vectors
        whole = asm.mul(asm.divide(count, vectors * lanes)[0], vectors * lanes)

        def several(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            return self._vectors_of_scores(rows, first, (key, vectors), None, largest)

        def one(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            mask = self._head.mask(asm.sub(count, key))
            return self._vectors_of_scores(rows, first, (key, 1), mask, largest)

        largest = asm.loop(0, whole, vectors * lanes, [self._head.splat(-math.inf)] * len(rows), several)
        return asm.loop(whole, count, lanes, largest, one)

    def _vectors_of_scores(
        self,
        rows: Sequence[Index],
        first: Index,
        place: tuple[Index, int],
        mask: ir.Value | None,
        largest: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Emit the scores of some vectors of keys of the panel, given the first key and how many vectors there are."""
        asm, lanes, (key, vectors) = self._asm, self._of.lanes, place
        totals, seen = self._products(rows, key, vectors), []
        for row, most in enumerate(largest):
            for number in range(vectors):
                at = asm.add(key, number * lanes)
                score = self._head.finished(totals[row * vectors + number], rows[row], asm.add(first, at), mask)
                asm.store(score, self._scratch.scores, asm.add(row * self._of.block, at), lanes)
                most = arith.maximumf(most, score)
            seen.append(most)
        return seen

    def _products(self, rows: Sequence[Index], key: Index, vectors: int) -> list[ir.Value]:
        """The products of queries with some vectors of the panel's keys."""
        asm, lanes, head, form = self._asm, self._of.lanes, self._head, self._of.form
        memory, starts = head.memories[form.queries.memory], [head.offset(form.queries, row) for row in rows]

        def step(element: Index, totals: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(asm.mul(element, self._of.block), key)
            loaded = [asm.load(self._scratch.panel, asm.add(start, part * lanes), lanes) for part in range(vectors)]
            factors = [asm.broadcast(memory, asm.add(query, element)) for query in starts]
            pairs = [(factor, part) for factor in factors for part in loaded]
            return [asm.multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

        return head.unrolled(form.depth, step, [head.splat(0.0)] * (len(starts) * vectors))

    def _exponentials(self, count: Index, bases: Sequence[ir.Value], totals: list[ir.Value]) -> list[ir.Value]:
        """Emit the exponentials of the scores of queries with the panel's keys; returns ``totals`` with them added."""
        asm, lanes, memory = self._asm, self._of.lanes, self._scratch.scores

        def step(key: Index, carried: list[ir.Value]) -> list[ir.Value]:
            places = [asm.add(row * self._of.block, key) for row in range(self._of.rows)]
            scores = [asm.load(memory, place, lanes) for place in places]
            powers = [exp(asm, difference) for difference in map(arith.subf, scores, bases)]
            for power, place in zip(powers, places, strict=True):
                asm.store(power, memory, place, lanes)
            return [*map(arith.addf, carried, powers)]

        return asm.loop(0, count, lanes, totals, step)

    def _finish(self, tile: Index) -> None:
        """Divide the totals of a tile's queries by their sums, and store them."""
        asm, lanes, scratch, head = self._asm, self._of.lanes, self._scratch, self._head
        for row, query in enumerate(self._rows(tile)):
            place = asm.add(tile, row)
            total = head.reduced(asm.load(scratch.sums, asm.mul(place, lanes), lanes), arith.addf)
            inverse = head.inverse(total)
            parts = [asm.load(scratch.totals, part, lanes) for part in self._places(place)]
            head.store(query, [arith.mulf(part, inverse) for part in parts])

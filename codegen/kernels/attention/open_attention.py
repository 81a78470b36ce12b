"""Attention over any number of batches, queries and keys: the scores of a few queries stay in the first-level cache.

A workgroup computes tiles of some queries of a head. Their scores are computed for vectors of keys, then their
exponentials, and then the sum of the values by these; nothing else is written to memory. The last queries of a head
that are no whole tile are computed in one that begins earlier, or, if there are fewer than a tile has, repeated: two
workgroups may write the same numbers to the same place.

Where the elements of a key are adjacent, as in a cache that grows by rows, a vector of scores is added up from those of
as many keys as it has lanes. Products of a few keys at a time are stored before: where all were written out, LLVM
loaded rows in an order that the hardware's prefetchers do not follow, and reading a long cache took twice as long.
Fetching rows by instructions is no faster than these prefetchers are, mostly slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import most_of
from sartor.codegen.kernels.attention.attention_kernel import FLOAT_BYTES, AttentionKernel
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.special_functions import exp
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.single.lane_sums import added_lanes
from sartor.codegen.mlir.iree_compiler import arith, ir

# Worker threads have stacks of 128 KiB, of which products take 8 at most.
_MOST_SCRATCH_BYTES = 48 << 10

MOST_FEW = 8
"""More queries than these are cut into tiles."""

# Keys whose products with queries are computed in a step of a loop.
_KEYS_TOGETHER = 4


@dataclass(frozen=True)
class OpenAttention(AttentionKernel):
    """Scores of a tile with all keys at once; ``workgroups`` partition the tiles."""

    @property
    def padded_keys(self) -> int:
        """Most scores of a query, in whole vectors."""
        most = most_of(self.form.extents[-1])
        return -(-most // self.lanes) * self.lanes

    @property
    def products(self) -> int:
        """Products of the queries with a vector of keys whose elements are adjacent, before they are added up."""
        return self.rows * self.lanes * self.lanes if self.form.has_key_rows else 0

    def check(self) -> None:
        # Heads that share keys read them for all their queries.
        if self.form.has_key_rows and self.form.members * most_of(self.form.extents[2]) > MOST_FEW:
            raise RejectionError("keys whose elements are adjacent are better copied for so many queries")
        if self.rows * self.padded_keys * FLOAT_BYTES > _MOST_SCRATCH_BYTES:
            raise RejectionError(f"scores of {self.rows} queries with {self.padded_keys} keys do not fit a workgroup")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        scratch = asm.scratch(self.rows * self.padded_keys + self.products, ir.F32Type.get())
        batches, heads, queries, _ = map(asm.size, self.form.extents)
        tiles = asm.divide(asm.add(queries, self.rows - 1), self.rows)[0]
        total = asm.times(asm.times(batches, heads), tiles)

        def tile(index: Index) -> None:
            rest, number = asm.divide(index, tiles)
            batch, head = asm.divide(rest, heads)
            last = asm.maximum(0, asm.sub(queries, self.rows))
            first = asm.minimum(asm.mul(number, self.rows), last)
            rows = [asm.minimum(asm.add(first, row), asm.sub(queries, 1)) for row in range(self.rows)]
            _TileWriter(self, HeadCode.of(asm, self.form, memories, batch, head), scratch, rows).write()

        asm.repeat(*workgroup_range(asm, total, self.workgroups, group[0]), 1, tile)


class _TileWriter:
    """Emits the code of a tile."""

    def __init__(self, of: OpenAttention, head: HeadCode, scratch: ir.Value, rows: Sequence[Index]) -> None:
        self._of, self._asm, self._head, self._scratch = of, head.asm, head, scratch
        self._rows = rows

    def write(self) -> None:
        """Emit the scores, their exponentials, and the sums of values."""
        self._mix(self._exponentials(self._scores()))

    def _scores(self) -> list[ir.Value]:
        """Emit the scores of all keys; returns the largest of each query, in all elements of a vector."""
        asm, lanes, keys = self._asm, self._of.lanes, self._head.keys
        step = self._of.vectors * lanes
        whole = asm.mul(asm.divide(keys, step)[0], step)

        def several(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            return self._block(key, self._of.vectors, None, largest)

        def one(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            return self._block(key, 1, asm.minimum(lanes, asm.sub(keys, key)), largest)

        largest = asm.loop(0, whole, step, [self._head.splat(float("-inf"))] * len(self._rows), several)
        largest = asm.loop(whole, keys, lanes, largest, one)
        return [self._head.reduced(row, arith.maximumf) for row in largest]

    def _block(self, key: Index, vectors: int, count: Index | None, largest: list[ir.Value]) -> list[ir.Value]:
        """Emit the scores of some vectors of keys, of the only of which ``count`` keys exist, None for all."""
        asm, form, lanes = self._asm, self._of.form, self._of.lanes
        mask = None if count is None else self._head.mask(count)
        if form.has_key_rows:
            queries = self._queries()
            by_vector = [self._dots(queries, asm.add(key, number * lanes), count) for number in range(vectors)]
            totals = [total for by_query in zip(*by_vector, strict=True) for total in by_query]
        else:
            totals = self._column_sums(key, vectors, mask)
        seen = []
        for row, before in enumerate(largest):
            for number in range(vectors):
                at = asm.add(key, number * lanes)
                score = self._head.finished(totals[row * vectors + number], self._rows[row], at, mask)
                asm.store(score, self._scratch, asm.add(row * self._of.padded_keys, at), lanes)
                before = arith.maximumf(before, score)
            seen.append(before)
        return seen

    def _column_sums(self, key: Index, vectors: int, mask: ir.Value | None) -> list[ir.Value]:
        """The products of all queries with some vectors of keys that are adjacent."""
        asm, form, lanes, head = self._asm, self._of.form, self._of.lanes, self._head
        queries = [head.offset(form.queries, row) for row in self._rows]
        keys = asm.add(head.offset(form.keys, 0), key)
        rows, columns = head.memories[form.queries.memory], head.memories[form.keys.memory]

        def step(element: Index, totals: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(keys, asm.times(element, asm.size(form.keys.steps[-2])))
            loaded = [head.load(columns, asm.add(start, number * lanes), mask) for number in range(vectors)]
            factors = [asm.broadcast(rows, asm.add(query, element)) for query in queries]
            pairs = [(factor, part) for factor in factors for part in loaded]
            return [asm.multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

        return head.unrolled(form.depth, step, [head.splat(0.0)] * (len(queries) * vectors))

    def _queries(self) -> list[list[ir.Value]]:
        """The elements of all queries, in vectors."""
        asm, head, queries = self._asm, self._head, self._of.form.queries
        memory, parts = head.memories[queries.memory], head.parts(self._of.form.depth)
        starts = [head.offset(queries, row) for row in self._rows]
        return [[asm.load(memory, asm.add(start, first), count) for first, count in parts] for start in starts]

    def _dots(self, queries: Sequence[Sequence[ir.Value]], key: Index, count: Index | None) -> list[ir.Value]:
        """The products of queries with as many keys as a vector has lanes, whose elements are adjacent; the last key is
        read again in place of those that do not exist.

        A key is read once for all queries.
        """
        asm, head, lanes = self._asm, self._head, self._of.lanes
        keys, last = head.form.keys, asm.sub(head.keys, 1)
        first, step = head.offset(keys, 0), asm.size(keys.steps[-1])
        memory, parts = head.memories[keys.memory], head.parts(head.form.depth)
        products = [len(queries) * self._of.padded_keys + row * lanes * lanes for row in range(len(queries))]

        def few(lane: Index) -> None:
            for number in range(_KEYS_TOGETHER):
                row = asm.add(key, lane, number)
                start = asm.add(first, asm.times(row if count is None else asm.minimum(row, last), step))
                loaded = [asm.load(memory, asm.add(start, element), size) for element, size in parts]
                into = asm.mul(asm.add(lane, number), lanes)
                for query, place in zip(queries, products, strict=True):
                    total = head.splat(0.0)
                    for pair in zip(query, loaded, strict=True):
                        total = asm.multiply_add(*pair, total)
                    asm.store(total, self._scratch, asm.add(place, into), lanes)

        asm.repeat(0, lanes, _KEYS_TOGETHER, few)
        return [
            added_lanes(asm, [asm.load(self._scratch, place + lane * lanes, lanes) for lane in range(lanes)])
            for place in products
        ]

    def _exponentials(self, largest: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the exponentials of what is left of the largest score; returns the sum of each query's."""
        asm, lanes, head = self._asm, self._of.lanes, self._head

        def step(key: Index, sums: list[ir.Value]) -> list[ir.Value]:
            added = []
            for row, (most, total) in enumerate(zip(largest, sums, strict=True)):
                offset = asm.add(row * self._of.padded_keys, key)
                power = exp(asm, arith.subf(asm.load(self._scratch, offset, lanes), most))
                power = arith.select(head.mask(asm.sub(head.keys, key)), power, head.splat(0.0))
                asm.store(power, self._scratch, offset, lanes)
                added.append(arith.addf(total, power))
            return added

        sums = asm.loop(0, head.keys, lanes, [head.splat(0.0)] * len(self._rows), step)
        return [head.reduced(row, arith.addf) for row in sums]

    def _mix(self, sums: Sequence[ir.Value]) -> None:
        """Emit the sums of the values by exponentials, divided by the exponentials' own, and store them."""
        head = self._head
        parts = len(head.parts(self._of.form.columns))
        starts = [row * self._of.padded_keys for row in range(len(self._rows))]
        zeros = [head.splat(0.0)] * (len(self._rows) * parts)
        totals = head.mixed((0, head.keys), (self._scratch, starts), zeros)
        for row, total in enumerate(sums):
            inverse = head.inverse(total)
            head.store(self._rows[row], [arith.mulf(part, inverse) for part in totals[row * parts : (row + 1) * parts]])

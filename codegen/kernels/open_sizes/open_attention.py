"""Attention over any number of batches, queries and keys: the scores of a few queries stay in the first-level cache.

A workgroup computes tiles of some queries of a head. Their scores are computed for vectors of keys, then their
exponentials, and then the sum of the values by these; nothing else is written to memory. The last queries of a head
that are no whole tile are computed in one that begins earlier, or, if there are fewer than a tile has, repeated: two
workgroups may write the same numbers to the same place.

Where the elements of a key are adjacent, as in a cache that grows by rows, a vector of scores is added up from those of
as many keys as it has lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import most_of
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.control_flow import Body
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.special_functions import exp
from sartor.codegen.kernels.loops.epilogue import emit_region
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.open_sizes.attention_form import AttentionForm, Operand, Strided
from sartor.codegen.kernels.single.lane_sums import added_lanes
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

# Worker threads have stacks of 128 KiB.
_MOST_SCRATCH_BYTES = 48 << 10
_FLOAT_BYTES = 4
_UNROLL = 4


@dataclass(frozen=True)
class OpenAttention:
    """A kernel of attention.

    Attributes:
        form: what it computes.
        rows: queries of a tile.
        vectors: vectors of keys whose scores are computed at once.
        lanes: elements of a vector.
        workgroups: workgroups that partition the tiles.
    """

    form: AttentionForm
    rows: int
    vectors: int
    lanes: int
    workgroups: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.workgroups, 1, 1

    @property
    def padded_keys(self) -> int:
        """Most scores of a query, in whole vectors."""
        most = most_of(self.form.extents[-1])
        return -(-most // self.lanes) * self.lanes

    def check(self) -> None:
        """Make sure that the scores of a tile fit a workgroup's memory.

        Raises:
            ValueError: if they do not.
        """
        if self.rows * self.padded_keys * _FLOAT_BYTES > _MOST_SCRATCH_BYTES:
            raise ValueError(f"scores of {self.rows} queries with {self.padded_keys} keys do not fit a workgroup")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        scratch = asm.scratch(self.rows * self.padded_keys, ir.F32Type.get())
        batches, heads, queries, _ = map(asm.size, self.form.extents)
        tiles = asm.divide(asm.add(queries, self.rows - 1), self.rows)[0]
        total = asm.times(asm.times(batches, heads), tiles)

        def tile(index: Index) -> None:
            rest, number = asm.divide(index, tiles)
            batch, head = asm.divide(rest, heads)
            last = asm.maximum(0, asm.sub(queries, self.rows))
            first = asm.minimum(asm.mul(number, self.rows), last)
            rows = [asm.minimum(asm.add(first, each), asm.sub(queries, 1)) for each in range(self.rows)]
            _TileWriter(self, asm, memories, scratch, (batch, head), rows).write()

        asm.repeat(*workgroup_range(asm, total, self.workgroups, group[0]), 1, tile)


class _TileWriter:
    """Emits the code of a tile."""

    def __init__(
        self,
        of: OpenAttention,
        asm: Assembler,
        memories: Sequence[ir.Value],
        scratch: ir.Value,
        place: tuple[Index, Index],
        rows: Sequence[Index],
    ) -> None:
        self._of, self._asm, self._memories, self._scratch = of, asm, memories, scratch
        self._place = place
        self._rows = rows
        self._keys = asm.size(of.form.extents[-1])

    def write(self) -> None:
        """Emit the scores, their exponentials, and the sums of values."""
        self._mix(self._exponentials(self._scores()))

    def _scores(self) -> list[ir.Value]:
        """Emit the scores of all keys; returns the largest of each query, in all elements of a vector."""
        asm, lanes = self._asm, self._of.lanes
        step = self._of.vectors * lanes
        whole = asm.mul(asm.divide(self._keys, step)[0], step)
        least = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), float("-inf")))

        def several(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            return self._block(key, self._of.vectors, None, largest)

        def one(key: Index, largest: list[ir.Value]) -> list[ir.Value]:
            return self._block(key, 1, asm.minimum(lanes, asm.sub(self._keys, key)), largest)

        largest = asm.loop(0, whole, step, [least] * len(self._rows), several)
        largest = asm.loop(whole, self._keys, lanes, largest, one)
        return [self._reduced(each, arith.maximumf) for each in largest]

    def _block(self, key: Index, vectors: int, count: Index | None, largest: list[ir.Value]) -> list[ir.Value]:
        """Emit the scores of some vectors of keys, of the only of which ``count`` keys exist, None for all."""
        asm, form, lanes = self._asm, self._of.form, self._of.lanes
        mask = None if count is None else self._mask(count)
        if form.has_key_rows:
            starts = [asm.add(key, each * lanes) for each in range(vectors)]
            totals = [self._dots(query, start, count) for query in self._queries() for start in starts]
        else:
            totals = self._column_sums(key, vectors, mask)
        found = []
        for row, before in enumerate(largest):
            for index in range(vectors):
                at = asm.add(key, index * lanes)
                score = self._finished(totals[row * vectors + index], self._rows[row], at, mask)
                if mask is not None:
                    score = arith.select(mask, score, asm.splat(ir.FloatAttr.get(ir.F32Type.get(), float("-inf"))))
                asm.store(score, self._scratch, asm.add(row * self._of.padded_keys, at), lanes)
                before = arith.maximumf(before, score)
            found.append(before)
        return found

    def _column_sums(self, key: Index, vectors: int, mask: ir.Value | None) -> list[ir.Value]:
        """The products of all queries with some vectors of keys that are adjacent."""
        asm, form, lanes = self._asm, self._of.form, self._of.lanes
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        queries = [self._offset(form.queries, row) for row in self._rows]
        keys = asm.add(self._offset(form.keys, 0), key)
        memories = self._memories

        def step(element: Index, totals: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(keys, asm.times(element, asm.size(form.keys.steps[2])))
            loaded = [
                self._load(memories[form.keys.memory], asm.add(start, index * lanes), mask) for index in range(vectors)
            ]
            factors = [asm.broadcast(memories[form.queries.memory], asm.add(query, element)) for query in queries]
            pairs = [(factor, each) for factor in factors for each in loaded]
            return [asm.multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

        return self._steps(form.depth, step, [zero] * (len(queries) * vectors))

    def _queries(self) -> list[list[ir.Value]]:
        """The elements of all queries, in vectors."""
        asm, memory = self._asm, self._memories[self._of.form.queries.memory]
        starts = [self._offset(self._of.form.queries, row) for row in self._rows]
        return [[asm.load(memory, asm.add(start, first), count) for first, count in self._parts] for start in starts]

    @property
    def _parts(self) -> list[tuple[int, int]]:
        """The first element and the number of elements of each vector of a query or key."""
        depth, lanes = self._of.form.depth, self._of.lanes
        return [(first, min(lanes, depth - first)) for first in range(0, depth, lanes)]

    def _dots(self, query: Sequence[ir.Value], key: Index, count: Index | None) -> ir.Value:
        """The products of a query with as many keys as a vector has lanes, whose elements are adjacent; the last key is
        read again in place of those that do not exist."""
        asm, form = self._asm, self._of.form
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        memory, first, last = self._memories[form.keys.memory], self._offset(form.keys, 0), asm.sub(self._keys, 1)
        totals = []
        for lane in range(asm.lanes):
            row = asm.add(key, lane) if count is None else asm.minimum(asm.add(key, lane), last)
            start, total = asm.add(first, asm.times(row, asm.size(form.keys.steps[-1]))), zero
            for part, (element, size) in zip(query, self._parts, strict=True):
                total = asm.multiply_add(part, asm.load(memory, asm.add(start, element), size), total)
            totals.append(total)
        return added_lanes(asm, totals)

    def _finished(self, score: ir.Value, row: Index, key: Index, mask: ir.Value | None) -> ir.Value:
        """The scores after the elementwise steps."""
        values = {self._of.form.product: score}
        for step in self._of.form.steps:
            inputs = [self._operand(operand, values, row, key, mask) for operand in step.operands]
            score = values[step.op.results[0]] = emit_region(self._asm, step.op, inputs)
        return score

    def _operand(
        self, operand: Operand, values: dict[ir.Value, ir.Value], row: Index, key: Index, mask: ir.Value | None
    ) -> ir.Value:
        asm = self._asm
        if isinstance(operand, ir.Attribute):
            return asm.splat(operand)
        if not isinstance(operand, Strided):
            return values[operand]
        offset, memory = self._offset(operand, row), self._memories[operand.memory]
        if operand.steps[-1] == 0:
            return asm.broadcast(memory, offset)
        return self._load(memory, asm.add(offset, key), mask)

    def _exponentials(self, largest: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the exponentials of what is left of the largest score; returns the sum of each query's."""
        asm, lanes = self._asm, self._of.lanes
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))

        def step(key: Index, sums: list[ir.Value]) -> list[ir.Value]:
            found = []
            for row, (most, total) in enumerate(zip(largest, sums, strict=True)):
                offset = asm.add(row * self._of.padded_keys, key)
                power = exp(asm, arith.subf(asm.load(self._scratch, offset, lanes), most))
                left = self._mask(asm.sub(self._keys, key))
                power = arith.select(left, power, zero)
                asm.store(power, self._scratch, offset, lanes)
                found.append(arith.addf(total, power))
            return found

        sums = asm.loop(0, self._keys, lanes, [zero] * len(self._rows), step)
        return [self._reduced(each, arith.addf) for each in sums]

    def _mix(self, sums: Sequence[ir.Value]) -> None:
        """Emit the sums of the values by exponentials, divided by the exponentials' own, and store them."""
        asm, form, lanes = self._asm, self._of.form, self._of.lanes
        one, zero = (asm.splat(ir.FloatAttr.get(ir.F32Type.get(), each)) for each in (1.0, 0.0))
        parts = [(each, min(lanes, form.columns - each)) for each in range(0, form.columns, lanes)]
        values = self._offset(form.values, 0)

        def step(key: Index, totals: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(values, asm.times(key, asm.size(form.values.steps[2])))
            memory = self._memories[form.values.memory]
            loaded = [asm.load(memory, asm.add(start, each), count) for each, count in parts]
            factors = [
                asm.broadcast(self._scratch, asm.add(row * self._of.padded_keys, key)) for row in range(len(self._rows))
            ]
            pairs = [(factor, each) for factor in factors for each in loaded]
            return [asm.multiply_add(*pair, total) for pair, total in zip(pairs, totals, strict=True)]

        totals = asm.loop(0, self._keys, 1, [zero] * (len(self._rows) * len(parts)), step)
        for row, total in enumerate(sums):
            inverse = arith.divf(one, total)
            offset = self._offset(form.result, self._rows[row])
            for index, (each, count) in enumerate(parts):
                value = arith.mulf(totals[row * len(parts) + index], inverse)
                asm.store(value, self._memories[form.result.memory], asm.add(offset, each), count)

    def _steps(self, count: int, body: Body, totals: list[ir.Value]) -> list[ir.Value]:
        """Run steps whose number is known, some of them written out."""
        unroll = next(each for each in range(_UNROLL, 0, -1) if count % each == 0)

        def several(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            for each in range(unroll):
                carried = body(self._asm.add(index, each), carried)
            return carried

        return self._asm.loop(0, count, unroll, totals, several)

    def _offset(self, strided: Strided, row: Index) -> Index:
        """Offset of a row of the head, in elements."""
        asm = self._asm
        steps = [asm.size(step) for step in strided.steps]
        return asm.add(*(asm.times(index, step) for index, step in zip((*self._place, row), steps, strict=False)))

    def _load(self, memory: ir.Value, offset: Index, mask: ir.Value | None) -> ir.Value:
        asm = self._asm
        if mask is None:
            return asm.load(memory, offset, asm.lanes)
        kind = asm.vector_type(ir.F32Type.get())
        zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        return vector.maskedload(kind, memory, [asm.value(offset)], mask, zero)

    def _mask(self, count: Index) -> ir.Value:
        """A condition for each lane: whether it is one of the first ``count``."""
        kind = ir.VectorType.get([self._of.lanes], ir.IntegerType.get_signless(1))
        return vector.create_mask(kind, [self._asm.value(count)])

    def _reduced(self, numbers: ir.Value, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """All elements of a vector combined, in each of its elements."""
        distance = self._of.lanes // 2
        while distance:
            numbers = combine(numbers, self._asm.rotated(numbers, distance))
            distance //= 2
        return numbers

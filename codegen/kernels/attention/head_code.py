"""Code that kernels of attention on a CPU have in common: where a head's rows are, and what follows its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.attention.attention_form import AttentionForm, Operand
from sartor.codegen.kernels.attention.attention_loops import Strided
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.control_flow import Body
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import emit_region
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_UNROLL = 4


@dataclass(frozen=True)
class HeadCode:
    """Emits code for a head of a batch.

    Attributes:
        asm: emits.
        form: what the kernel computes.
        memories: its buffers.
        batch: index of the batch.
        group: index of the head of keys.
        member: index of the head among those that share these keys.
    """

    asm: Assembler
    form: AttentionForm
    memories: Sequence[ir.Value]
    batch: Index
    group: Index
    member: Index

    @staticmethod
    def of(asm: Assembler, form: AttentionForm, memories: Sequence[ir.Value], batch: Index, head: Index) -> HeadCode:
        """The code for a head of a batch."""
        group, member = (head, 0) if form.members == 1 else asm.divide(head, form.members)
        return HeadCode(asm, form, memories, batch, group, member)

    @property
    def keys(self) -> Index:
        """The number of keys."""
        return self.asm.size(self.form.extents[-1])

    def offset(self, strided: Strided, row: Index) -> Index:
        """Offset of a row of the head, in elements."""
        asm = self.asm
        steps = [asm.size(step) for step in strided.steps]
        places = self.batch, self.group, self.member, row
        return asm.add(*(asm.times(index, step) for index, step in zip(places, steps, strict=False)))

    def parts(self, elements: int) -> list[tuple[int, int]]:
        """The first element and the number of elements of each vector of a row."""
        lanes = self.asm.lanes
        return [(first, min(lanes, elements - first)) for first in range(0, elements, lanes)]

    def finished(self, score: ir.Value, row: Index, key: Index, mask: ir.Value | None) -> ir.Value:
        """A vector of products of a query with keys from ``key`` on after the elementwise steps.

        Args:
            score: the products.
            row: of the query.
            key: the first key.
            mask: a condition for each lane, whether its key exists; None if all do.
        """
        values = {self.form.product: score}
        for step in self.form.steps:
            inputs = [self._operand(operand, values, row, key, mask) for operand in step.operands]
            score = values[step.op.results[0]] = emit_region(self.asm, step.op, inputs)
        return score if mask is None else arith.select(mask, score, self.splat(float("-inf")))

    def _operand(
        self, operand: Operand, values: dict[ir.Value, ir.Value], row: Index, key: Index, mask: ir.Value | None
    ) -> ir.Value:
        asm = self.asm
        if isinstance(operand, ir.Attribute):
            return asm.splat(operand)
        if not isinstance(operand, Strided):
            return values[operand]
        offset, memory = self.offset(operand, row), self.memories[operand.memory]
        if operand.steps[-1] == 0:
            return asm.broadcast(memory, offset)
        return self.load(memory, asm.add(offset, key), mask)

    def load(self, memory: ir.Value, offset: Index, mask: ir.Value | None) -> ir.Value:
        """A vector, of which the elements that a mask names are read and others are zero; None for all."""
        asm = self.asm
        if mask is None:
            return asm.load(memory, offset, asm.lanes)
        return vector.maskedload(asm.vector_type(ir.F32Type.get()), memory, [asm.value(offset)], mask, self.splat(0.0))

    def mask(self, count: Index) -> ir.Value:
        """A condition for each lane: whether it is one of the first ``count``."""
        kind = ir.VectorType.get([self.asm.lanes], ir.IntegerType.get_signless(1))
        return vector.create_mask(kind, [self.asm.value(count)])

    def reduced(self, numbers: ir.Value, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """All elements of a vector combined, in each of its elements."""
        distance = self.asm.lanes // 2
        while distance:
            numbers = combine(numbers, self.asm.rotated(numbers, distance))
            distance //= 2
        return numbers

    def unrolled(self, count: Index, body: Body, totals: list[ir.Value]) -> list[ir.Value]:
        """Run steps, some of them written out if their number is known."""
        known = count if isinstance(count, int) else 1
        unroll = next(size for size in range(_UNROLL, 0, -1) if known % size == 0)

        def several(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            for step in range(unroll):
                carried = body(self.asm.add(index, step), carried)
            return carried

        return self.asm.loop(0, count, unroll, totals, several)

    def mixed(
        self,
        keys: tuple[Index, Index],
        factors: tuple[ir.Value, Sequence[Index]],
        totals: list[ir.Value],
    ) -> list[ir.Value]:
        """Add values times factors to sums, which rows have for each vector of a value.

        Args:
            keys: the first, and their number.
            factors: memory of the factors, and where those of each row begin.
            totals: the sums, row by row.
        """
        asm, form = self.asm, self.form
        parts = self.parts(form.columns)
        start = self.offset(form.values, keys[0])
        memory, (scratch, rows) = self.memories[form.values.memory], factors

        distance = asm.size(form.values.steps[-2])

        def step(key: Index, carried: list[ir.Value]) -> list[ir.Value]:
            value = asm.add(start, asm.times(key, distance))
            loaded = [asm.load(memory, asm.add(value, first), count) for first, count in parts]
            repeated = [asm.broadcast(scratch, asm.add(row, key)) for row in rows]
            pairs = [(factor, part) for factor in repeated for part in loaded]
            return [asm.multiply_add(*pair, total) for pair, total in zip(pairs, carried, strict=True)]

        return self.unrolled(keys[1], step, totals)

    def inverse(self, total: ir.Value) -> ir.Value:
        """What the sums of values are multiplied by, given that of the exponentials; without keys both are zero, and so
        is the result."""
        one, has_none = self.splat(1.0), self.asm.equal(self.keys, 0)
        if isinstance(has_none, bool):
            return arith.divf(one, one if has_none else total)
        return arith.divf(one, arith.select(has_none, one, total))

    def store(self, row: Index, vectors: Sequence[ir.Value]) -> None:
        """Store a row of the result."""
        offset, memory = self.offset(self.form.result, row), self.memories[self.form.result.memory]
        for (first, count), numbers in zip(self.parts(self.form.columns), vectors, strict=True):
            self.asm.store(numbers, memory, self.asm.add(offset, first), count)

    def splat(self, number: float) -> ir.Value:
        """A vector that repeats a constant."""
        return self.asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))

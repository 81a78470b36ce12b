"""A kernel for layers on rows: one pass over a row for each level of folds; the row stays in the cache in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import emit_region
from sartor.codegen.kernels.loops.partition import PartitionedKernel, workgroup_range
from sartor.codegen.kernels.rows.row_form import Given, Operand, RowForm, Step
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.codegen.mlir.operations import body_of, defining_op

# Worker threads have stacks of 128 KiB.
_MOST_KEPT_BYTES = 48 << 10
_FLOAT_BYTES = 4
# Vectors of a row that are written out; longer rows are processed in a loop.
_MOST_WRITTEN_OUT = 32
_OF_A_LOOP = 8


@dataclass(frozen=True)
class Part:
    """A vector of a row: its first element, and how many elements it has."""

    column: Index
    count: int


@dataclass(frozen=True)
class RowwiseKernel(PartitionedKernel):
    """A kernel that computes each row from itself.

    Attributes:
        form: the steps on each row.
        result: position of the result among the buffers.
        vector: elements of a vector.
        workgroups: workgroups that partition the rows.
    """

    form: RowForm
    result: int
    vector: int
    workgroups: int

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.vector

    @property
    def vectors(self) -> int:
        """Vectors that hold a row."""
        return -(-self.form.length // self.lanes)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        kept = self.form.kept
        size = self.vectors * self.lanes
        if not asm.has_scratch or len(kept) * size * _FLOAT_BYTES > _MOST_KEPT_BYTES:
            kept = []
        scratch = {step: asm.scratch(size, ir.F32Type.get()) for step in kept}
        asm.repeat(
            *workgroup_range(asm, asm.size(self.form.rows), self.workgroups, group[0]),
            1,
            lambda row: _RowWriter(self, asm, memories, scratch, row).write(),
        )

    def parts(self, asm: Assembler, carried: list[ir.Value], body: Body) -> list[ir.Value]:
        """Emit ``body`` for all vectors of a row, several at a time; returns the carried values."""
        length, lanes = self.form.length, self.lanes
        step = (self.vectors if self.vectors <= _MOST_WRITTEN_OUT else _OF_A_LOOP) * lanes
        whole = length // step * step

        def several(column: Index, carried: list[ir.Value]) -> list[ir.Value]:
            return body([Part(asm.add(column, index), lanes) for index in range(0, step, lanes)], carried)

        carried = asm.loop(0, whole, step, carried, several)
        rest = [Part(column, min(lanes, length - column)) for column in range(whole, length, lanes)]
        return body(rest, carried) if rest else carried


Body: TypeAlias = Callable[[list[Part], list[ir.Value]], list[ir.Value]]


class _RowWriter:
    """Emits the code of one row."""

    def __init__(
        self,
        of: RowwiseKernel,
        asm: Assembler,
        memories: Sequence[ir.Value],
        scratch: dict[ir.Value, ir.Value],
        row: Index,
    ) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._scratch = scratch
        self._row = row
        self._steps = of.form.steps
        self._numbers: dict[ir.Value, ir.Value] = {}
        self._reciprocals: dict[ir.Value, ir.Value] = {}

    def write(self) -> None:
        self._compute_numbers(0)
        for level in range(self._steps[self._of.form.result].level + 1):
            self._pass(level)
            self._compute_numbers(level + 1)

    def _pass(self, level: int) -> None:
        """Emit the pass over all elements that has to be complete before the next level."""
        asm, form = self._asm, self._of.form
        folds = [fold for fold in self._steps.values() if fold.fold is not None and fold.level == level]
        stored = [value for value in self._scratch if self._steps[value].level == level]
        ends = self._steps[form.result].level == level

        def body(parts: list[Part], totals: list[ir.Value]) -> list[ir.Value]:
            known: list[dict[Operand, ir.Value]] = [{} for _ in parts]
            known_parts = list(zip(parts, known, strict=True))
            results = [
                self._folded(step, total, [self._term(step, part, values) for part, values in known_parts])
                for step, total in zip(folds, totals, strict=True)
            ]
            for part, values in known_parts:
                for kept_value in stored:
                    self._keep(kept_value, self._wide(kept_value, level, part, values), part)
                if ends:
                    offset = asm.add(asm.mul(self._row, form.length), part.column)
                    value = self._wide(form.result, level, part, values)
                    asm.store(value, self._memories[self._of.result], offset, part.count)
            return results

        neutral = [self._splat(fold.fold.neutral) for fold in folds if fold.fold is not None]
        totals = self._of.parts(asm, neutral, body) if folds or stored or ends else []
        for step, total in zip(folds, totals, strict=True):
            self._numbers[step.result] = self._number(step, total)

    def _term(self, step: Step, part: Part, values: dict[Operand, ir.Value]) -> ir.Value:
        """The vector that a fold combines, with neutral elements beyond the row's end."""
        assert step.fold is not None
        inputs = [self._value(operand, step.level, part, values) for operand in step.operands]
        term = emit_region(self._asm, step.op, inputs, step.fold.term)
        if part.count == self._asm.lanes:
            return term
        return arith.select(self._asm.first_lanes(part.count), term, self._splat(step.fold.neutral))

    def _folded(self, step: Step, total: ir.Value, terms: list[ir.Value]) -> ir.Value:
        """Combine terms pairwise, for short chains of dependent ops, then with the total."""
        while len(terms) > 1:
            pairs = [self._combine(step, *pair) for pair in zip(terms[::2], terms[1::2], strict=False)]
            terms = [*pairs, *terms[2 * len(pairs) :]]
        return self._combine(step, total, terms[0])

    def _number(self, step: Step, total: ir.Value) -> ir.Value:
        """Combine all elements of a vector, and repeat the result in each element."""
        assert step.fold is not None
        distance = self._asm.lanes // 2
        while distance:
            total = self._combine(step, total, self._asm.rotated(total, distance))
            distance //= 2
        initial = ir.FloatAttr(step.fold.initial)
        return total if initial.value == step.fold.neutral else self._combine(step, total, self._asm.splat(initial))

    def _combine(self, step: Step, one: ir.Value, other: ir.Value) -> ir.Value:
        assert step.fold is not None
        if self._may_lose_nan(step):
            return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, one, other), one, other)
        kind = self._asm.vector_type(ir.F32Type.get())
        return ir.Operation.create(step.fold.combine.name, results=[kind], operands=[one, other]).results[0]

    def _may_lose_nan(self, step: Step) -> bool:
        """Whether NaN reaches the whole row without a maximum of it, as in a softmax.

        The maximum is only subtracted from its own operand, and the result depends on a sum over the differences.
        """
        if step.fold is None or step.fold.combine.name != "arith.maximumf":
            return False
        steps = self._steps.values()
        users = [user_step for user_step in steps if step.result in user_step.operands]
        subtracted = all(
            user.operands == (*step.operands, step.result) and _is_only(user.op, "arith.subf") for user in users
        )
        sums = [
            step_of_sum
            for step_of_sum in steps
            if step_of_sum.fold is not None and step_of_sum.fold.combine.name == "arith.addf"
        ]
        result = self._of.form.result
        return subtracted and all(
            any(
                self._reads(step_of_sum.result, user.result) and self._reads(result, step_of_sum.result)
                for step_of_sum in sums
            )
            for user in users
        )

    def _reads(self, value: ir.Value, source: ir.Value) -> bool:
        """Whether a step's result depends on another one's."""
        pending, seen = [value], {value}
        while pending:
            step = self._steps.get(pending.pop())
            new = (
                {operand for operand in step.operands if isinstance(operand, ir.Value)} - seen
                if step is not None
                else set()
            )
            seen |= new
            pending += new
        return source in seen

    def _compute_numbers(self, level: int) -> None:
        """Emit ops on single numbers of a row at this level, and reciprocals of divisors."""
        for step in self._steps.values():
            if step.level == level and step.fold is None and not step.is_wide:
                inputs = [self._value(operand, level, Part(0, 1), {}) for operand in step.operands]
                self._numbers[step.result] = emit_region(self._asm, step.op, inputs)
        for divisor in {self._divisor(step) for step in self._steps.values()}:
            if divisor in self._numbers and divisor not in self._reciprocals:
                self._reciprocals[divisor] = arith.divf(self._splat(1.0), self._numbers[divisor])

    def _divisor(self, step: Step) -> ir.Value | None:
        """The sum of exponentials that a step divides by, if it only divides; None for other steps."""
        if not step.is_wide or not _is_only(step.op, "arith.divf") or len(step.operands) != 2:
            return None
        divisor = step.operands[1]
        return divisor if divisor in self._steps and self._adds_exponentials(self._steps[divisor]) else None

    def _adds_exponentials(self, step: Step) -> bool:
        """Whether a fold is a sum of exponentials of what is left of the row's largest number.

        Such a sum is at least one, and at most the row's length, so that its reciprocal is a normal number.
        """
        if step.fold is None or step.fold.combine.name != "arith.addf" or step.operands[0] not in self._steps:
            return False
        powers = self._steps[step.operands[0]]
        added = defining_op(list(body_of(powers.op).operations)[-1].operation.operands[0])
        before = [powers, *(self._steps[operand] for operand in powers.operands if operand in self._steps)]
        return added is not None and added.name == "math.exp" and any(map(self._is_below_zero, before))

    def _is_below_zero(self, step: Step) -> bool:
        """Whether a step subtracts the largest of a row's elements from each of them."""
        block = body_of(step.op)
        differences = [view.operation for view in block.operations if view.operation.name == "arith.subf"]
        subtracted = {op.operands[1] for op in differences}
        return any(
            argument in subtracted and operand in self._steps and self._is_largest_of(self._steps[operand], step)
            for argument, operand in zip(block.arguments, step.operands, strict=False)
        )

    def _is_largest_of(self, step: Step, other: Step) -> bool:
        """Whether a step is the maximum of what another one reads."""
        is_maximum = step.fold is not None and step.fold.combine.name == "arith.maximumf"
        return is_maximum and set(step.operands) <= set(other.operands)

    def _value(self, operand: Operand, level: int, part: Part, values: dict[Operand, ir.Value]) -> ir.Value:
        if isinstance(operand, ir.Attribute):
            return self._asm.splat(operand)
        if isinstance(operand, Given):
            if operand not in values:
                values[operand] = self._read(operand, part)
            return values[operand]
        return self._numbers[operand] if operand in self._numbers else self._wide(operand, level, part, values)

    def _read(self, given: Given, part: Part) -> ir.Value:
        asm, memory = self._asm, self._memories[given.memory]
        offset = given.offset(asm, self._row)
        if given.is_repeated:
            return asm.broadcast(memory, offset)
        return asm.load(memory, asm.add(offset, part.column), part.count)

    def _wide(self, value: ir.Value, level: int, part: Part, values: dict[Operand, ir.Value]) -> ir.Value:
        """A vector of a row that a step computes."""
        if value not in values:
            step, asm = self._steps[value], self._asm
            if value in self._scratch and step.level < level:
                values[value] = asm.rounded(
                    asm.load(self._scratch[value], part.column, asm.lanes), ir.RankedTensorType(value.type).element_type
                )
            else:
                inputs = [self._value(operand, level, part, values) for operand in step.operands]
                values[value] = self._computed(step, inputs)
        return values[value]

    def _keep(self, value: ir.Value, vector: ir.Value, part: Part) -> None:
        """Store a vector for later levels in f32, which holds what a step has rounded to a narrower type."""
        kind = self._asm.vector_type(ir.F32Type.get())
        real = vector if vector.type == kind else arith.extf(kind, vector)
        self._asm.store(real, self._scratch[value], part.column, self._asm.lanes)

    def _computed(self, step: Step, inputs: list[ir.Value]) -> ir.Value:
        divisor = self._divisor(step)
        if divisor is None:
            return emit_region(self._asm, step.op, inputs)
        return arith.mulf(inputs[0], self._reciprocals[divisor])

    def _splat(self, number: float) -> ir.Value:
        return self._asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))


def _is_only(op: ir.Operation, name: str) -> bool:
    """Whether a region is this op on its first two arguments."""
    block = body_of(op)
    # The last one yields the result.
    *computed, _ = (view.operation for view in block.operations)
    return [computed_op.name for computed_op in computed] == [name] and list(computed[0].operands) == list(
        block.arguments
    )[:2]

"""Layers on rows, such as softmax and layer normalization: a warp computes each row, which stays in its registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.epilogue import emit_region
from sartor.codegen.kernels.rows.row_form import Given, Operand, RowForm, Step
from sartor.codegen.mlir.iree_compiler import arith, ir, vector

_WARPS = 4
MOST_ELEMENTS = 48
"""Elements of a row that a thread keeps at most."""


@dataclass(frozen=True)
class WarpRows:
    """The code of a layer on rows.

    Attributes:
        form: the steps on each row.
        result: position of the result among the buffers.
        lanes: elements of a vector.
    """

    form: RowForm
    result: int
    lanes: int

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return _WARPS * WARP

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups over the rows."""
        return -(-self.form.count // _WARPS), 1, 1

    @property
    def vectors(self) -> int:
        """Vectors of a row that a thread keeps; the last may lie beyond the row's end."""
        return -(-self.form.length // (self.lanes * WARP))

    def check(self) -> None:
        """Make sure that rows fit registers.

        Raises:
            RejectionError: if they do not.
        """
        if self.vectors * self.lanes * max(1, len(self.form.kept)) > MOST_ELEMENTS:
            raise RejectionError(f"rows of {self.form.length} elements do not fit the registers of a warp")

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit the code of one thread."""
        if not isinstance(asm, ThreadAssembler):
            raise TypeError("the code is that of a thread")
        warp, lane = asm.divide(asm.thread(), WARP)
        row = asm.add(asm.mul(group[0], _WARPS), warp)
        # Warps beyond the last row compute it again, because lanes that are missing cannot be asked for their sums.
        existing = row if self.form.count % _WARPS == 0 else asm.minimum(row, self.form.count - 1)
        exists = True if self.form.count % _WARPS == 0 else asm.less(row, self.form.count)
        _Writer(self, asm, memories, existing, exists, lane).write()


@dataclass
class _Writer:
    """Emits the code of one row."""

    code: WarpRows
    asm: ThreadAssembler
    memories: Sequence[ir.Value]
    row: Index
    exists: Condition
    lane: Index
    _values: dict[tuple[ir.Value, int], ir.Value] = field(default_factory=dict)
    _numbers: dict[ir.Value, ir.Value] = field(default_factory=dict)
    _read: dict[tuple[Given, int], ir.Value] = field(default_factory=dict)

    def write(self) -> None:
        form, asm = self.code.form, self.asm
        for step in form.steps.values():
            if step.fold is not None:
                self._numbers[step.result] = self._folded(step)
            elif not step.is_wide:
                self._numbers[step.result] = emit_region(
                    asm, step.op, [self._operand(operand, 0) for operand in step.operands]
                )
        base = asm.mul(self.row, form.length)
        for number in range(self.code.vectors):
            value, column = self._wide(form.result, number), self._column(number)
            memory = self.memories[self.code.result]
            present = asm.all_of(self.exists, self._is_inside(number))
            asm.when(present, _stored(asm, value, memory, asm.add(base, column)))

    def _column(self, number: int) -> Index:
        """First element of the thread's vector of a number."""
        return self.asm.mul(self.asm.add(self.lane, number * WARP), self.code.lanes)

    def _is_inside(self, number: int) -> Condition:
        """Whether the thread's vector of a number lies in the row."""
        length, lanes = self.code.form.length, self.code.lanes
        if (number + 1) * WARP * lanes <= length:
            return True
        return self.asm.less(self._column(number), length)

    def _folded(self, step: Step) -> ir.Value:
        """A fold of the whole row, the same in all lanes and elements."""
        total = self._splat(step.fold.neutral) if step.fold else self._splat(0.0)
        for number in range(self.code.vectors):
            total = self._combine(step, total, self._term(step, number))
        lanes = self.code.lanes
        distance = lanes // 2
        while distance:
            turned = vector.shuffle(total, total, [(index + distance) % lanes for index in range(lanes)])
            total = self._combine(step, total, turned)
            distance //= 2
        distance = WARP // 2
        while distance:
            other = self.asm.from_lane(vector.extract(total, [], [0]), distance)
            total = self._combine(step, total, vector.broadcast(self.asm.vector_type(ir.F32Type.get()), other))
            distance //= 2
        assert step.fold is not None
        initial = ir.FloatAttr(step.fold.initial)
        return total if initial.value == step.fold.neutral else self._combine(step, total, self.asm.splat(initial))

    def _term(self, step: Step, number: int) -> ir.Value:
        """The vector that a fold combines, neutral beyond the row's end."""
        assert step.fold is not None
        inputs = [self._operand(operand, number) for operand in step.operands]
        term = emit_region(self.asm, step.op, inputs, step.fold.term)
        inside = self._is_inside(number)
        if isinstance(inside, bool):
            return term
        return arith.select(inside, term, self._splat(step.fold.neutral))

    def _combine(self, step: Step, one: ir.Value, other: ir.Value) -> ir.Value:
        assert step.fold is not None
        kind = self.asm.vector_type(ir.F32Type.get())
        return ir.Operation.create(step.fold.combine.name, results=[kind], operands=[one, other]).results[0]

    def _operand(self, operand: Operand, number: int) -> ir.Value:
        if isinstance(operand, ir.Attribute):
            return self.asm.splat(operand)
        if isinstance(operand, Given):
            if (operand, number) not in self._read:
                self._read[operand, number] = self._given(operand, number)
            return self._read[operand, number]
        return self._numbers[operand] if operand in self._numbers else self._wide(operand, number)

    def _given(self, given: Given, number: int) -> ir.Value:
        """A vector of an argument; beyond the row's end, the row's first."""
        asm, memory = self.asm, self.memories[given.memory]
        offset = given.offset(asm, self.row)
        if given.is_repeated:
            return asm.broadcast(memory, offset)
        column, inside = self._column(number), self._is_inside(number)
        if not isinstance(inside, bool):
            column = arith.select(inside, asm.value(column), asm.value(0))
        return asm.load(memory, asm.add(offset, column), self.code.lanes)

    def _wide(self, value: ir.Value, number: int) -> ir.Value:
        """A vector of a row that a step computes."""
        if (value, number) not in self._values:
            step = self.code.form.steps[value]
            inputs = [self._operand(operand, number) for operand in step.operands]
            self._values[value, number] = emit_region(self.asm, step.op, inputs)
        return self._values[value, number]

    def _splat(self, number: float) -> ir.Value:
        return self.asm.splat(ir.FloatAttr.get(ir.F32Type.get(), number))


def _stored(asm: ThreadAssembler, value: ir.Value, memory: ir.Value, offset: Index) -> Callable[[], None]:
    return lambda: asm.store(value, memory, offset, asm.lanes)

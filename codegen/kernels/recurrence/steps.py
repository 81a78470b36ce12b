"""A kernel that computes all steps of a recurrent layer.

In each step blocks of the state follow one another. For a block the products of the state and the matrices of all gates
are summed in registers, and the cell's elementwise ops follow at once on the sums, so that gates are never stored. The
matrices are packed in the order in which blocks read them, ``[blocks, hidden, gates, block]``, and stay in the
second-level cache if they fit it. The state that is multiplied is kept twice, as all blocks read its last value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sartor.codegen.ir.packing import PadTo, Reshape, Step, Transpose
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.recurrence.form import CarriedState, Recurrence, StateProduct
from sartor.codegen.kernels.recurrence.phase import Phase, Place, Scratch
from sartor.codegen.mlir.iree_compiler import ir

Rows: TypeAlias = tuple[ir.Value, Index, int]
"""Rows in memory: the memory, the first row, and the elements from one row to the next."""


@dataclass(frozen=True)
class StepsKernel:
    """All steps of a recurrent layer.

    Attributes:
        form: what a step computes.
        result: position of the result among the buffers.
        vector: elements of a vector.
        vectors: vectors of a block of the state.
        unroll: rows of a matrix in an iteration of the reduction.
        rows: rows of the batch that are computed together.
        workgroups: workgroups that partition the batch.
    """

    form: Recurrence
    result: int
    vector: int
    vectors: int
    unroll: int
    rows: int
    workgroups: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.workgroups, 1, 1

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.vector

    @property
    def block(self) -> int:
        """Elements of the state in a block."""
        return self.vectors * self.lanes

    @property
    def padded(self) -> int:
        """Elements of a row of a state in scratch memory: whole blocks."""
        return -(-self.form.hidden // self.block) * self.block

    def packing(self, product: StateProduct) -> tuple[Step, ...]:
        """Steps that pack a matrix ``[hidden, gates * hidden]`` as ``[blocks, hidden, gates, block]``."""
        hidden, gates, blocks = self.form.hidden, product.gates, self.padded // self.block
        return (
            Reshape((hidden, gates, hidden)),
            PadTo((hidden, gates, self.padded)),
            Reshape((hidden, gates, blocks, self.block)),
            Transpose((2, 0, 1, 3)),
        )

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        per_group = self.form.batch // self.workgroups
        begin = asm.mul(group[0], per_group)
        asm.repeat(0, per_group, self.rows, lambda row: _Writer(self, asm, memories, asm.add(begin, row)).write())


class _Writer:
    """Emits the steps of some rows of the batch."""

    def __init__(self, of: StepsKernel, asm: Assembler, memories: Sequence[ir.Value], row: Index) -> None:
        form, number = of.form, ir.F32Type.get()
        size = of.rows * of.padded
        multiplied = {each.factor for each in form.products}
        self._of = of
        self._asm = asm
        self._memories = memories
        self._row = row
        self._size = size
        self._doubled = [CarriedState(index) in multiplied for index in range(len(form.next))]
        states = [asm.scratch(size * (1 + each), number) for each in self._doubled]
        stored = {each: asm.scratch(size, number) for each in form.stored}
        self._scratch = Scratch(tuple(states), tuple(self._doubled), stored, of.padded)

    def write(self) -> None:
        """Emit all steps."""
        asm, form = self._asm, self._of.form
        self._begin()

        def step(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            now, then = carried
            time = asm.sub(asm.value(form.steps - 1), index) if form.is_reversed else index
            row = asm.add(asm.mul(time, form.batch), self._row)
            for phase in range(1, len(form.products) + 1):
                Phase(self._of, asm, self._memories, self._scratch, phase, Place(row, now, then)).write()
            return [then, now]

        asm.loop(0, form.steps, 1, [asm.value(0), asm.value(self._size)], step)
        if form.last_state is not None:
            self._end(form.last_state)

    def _begin(self) -> None:
        """Copy the initial states into scratch memory."""
        for memory, argument in zip(self._scratch.states, self._of.form.initial, strict=True):
            self._copy((self._memories[argument], self._row, self._of.form.hidden), (memory, 0, self._of.padded))

    def _end(self, state: int) -> None:
        """Copy the last value of a state into the row after the last step."""
        form = self._of.form
        begin = self._size if self._doubled[state] and form.steps % 2 else 0
        row = self._asm.add(self._row, form.steps * form.batch)
        source_rows = (self._scratch.states[state], begin // self._of.padded, self._of.padded)
        self._copy(source_rows, (self._memories[self._of.result], row, form.hidden))

    def _copy(self, origin: Rows, target: Rows) -> None:
        """Copy rows of a state between memories."""
        asm = self._asm

        def part(number: int, start: Index, count: int) -> None:
            (read, row, width), (written, into, pitch) = origin, target
            loaded = asm.load(read, asm.add(asm.mul(asm.add(row, number), width), start), count)
            asm.store(loaded, written, asm.add(asm.mul(asm.add(into, number), pitch), start), count)

        for number in range(self._of.rows):
            asm.by_steps(self._of.form.hidden, asm.lanes, partial(part, number))

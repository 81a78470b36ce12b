"""A kernel that computes all steps of a recurrent layer.

In each step blocks of the state follow one another. For a block the products of the state and the matrices of all gates
are summed in registers, and the cell's elementwise ops follow at once on the sums, so that gates are never stored. The
matrices are packed in the order in which blocks read them, ``[blocks, hidden, gates, block]``, and stay in the
second-level cache if they fit it. The state that is multiplied is kept twice, as all blocks read its last value.

Workgroups may share the steps of a sequence: each computes some of the blocks, and so keeps the matrices of these in
its core's cache (``meeting.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sartor.codegen.ir.layer import F32, I32, TensorType
from sartor.codegen.ir.packing import PadTo, Reshape, Step, Transpose
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.recurrence.form import CarriedState, Recurrence, StateProduct
from sartor.codegen.kernels.recurrence.meeting import Meeting, flags_of
from sartor.codegen.kernels.recurrence.phase import Phase, Place, Slot
from sartor.codegen.mlir.iree_compiler import ir

_FLOAT_BYTES = 4
# Matrices that are larger are not in the second-level cache of most cores when other layers ran, or in every step.
_CACHED_BYTES, _MOST_CACHED_BYTES = 512 << 10, 1 << 20

Rows: TypeAlias = tuple[ir.Value, Index, int]
"""Rows in memory: the memory, the offset of the first, and the elements from one row to the next."""


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
        shares: workgroups that share the steps of each of these.
    """

    form: Recurrence
    result: int
    vector: int
    vectors: int
    unroll: int
    rows: int
    workgroups: int
    shares: int = 1

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.workgroups, self.shares, 1

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

    @property
    def multiplied(self) -> list[bool]:
        """Whether each state is multiplied, and so kept twice."""
        factors = {product.factor for product in self.form.products}
        return [CarriedState(index) in factors for index in range(len(self.form.next))]

    @property
    def states_of_run(self) -> int:
        """Elements of all states and stored values of rows that are computed together."""
        return (sum(self.multiplied) + len(self.form.next) + len(self.form.stored)) * self.rows * self.padded

    @property
    def flags_of_run(self) -> int:
        """Numbers that hold the flags of these rows: of their first states, of their steps, and of their last state."""
        return flags_of(1) + flags_of(self.shares) + flags_of(1)

    @property
    def streams(self) -> bool:
        """Whether matrices come from beyond the second-level cache in each step; a single one finds nothing there."""
        gates = sum(product.gates for product in self.form.products)
        most = _CACHED_BYTES if self.form.steps == 1 else _MOST_CACHED_BYTES
        return gates * self.form.hidden**2 * _FLOAT_BYTES // self.shares > most

    @property
    def workspace(self) -> TensorType | None:
        """Type of the memory of states; None if no workgroups share steps."""
        return None if self.shares == 1 else TensorType((self.form.batch // self.rows * self.states_of_run,), F32)

    @property
    def flags(self) -> TensorType | None:
        """Type of the memory of flags; None if no workgroups share steps."""
        return None if self.shares == 1 else TensorType((self.form.batch // self.rows * self.flags_of_run,), I32)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        per_group = self.form.batch // self.workgroups
        begin = asm.mul(group[0], per_group)
        writer = _Writer if self.shares == 1 else _SharingWriter
        asm.repeat(
            0, per_group, self.rows, lambda row: writer(self, asm, memories, asm.add(begin, row), group[1]).write()
        )


class _Writer:
    """Emits the steps of some rows of the batch, whose states are in memory of the workgroup."""

    def __init__(self, of: StepsKernel, asm: Assembler, memories: Sequence[ir.Value], row: Index, share: Index) -> None:
        self._of = of
        self._asm = asm
        self._memories = memories
        self._row = row
        self._share = share
        self._size = of.rows * of.padded
        self._states = [self._allocated(self._size * (1 + twice)) for twice in of.multiplied]
        self._stored = {value: self._allocated(self._size) for value in of.form.stored}

    def write(self) -> None:
        """Emit all steps."""
        asm, form = self._asm, self._of.form
        steps = asm.size(form.steps)
        self._begin()

        def step(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            now, then = carried
            time = asm.sub(asm.value(asm.sub(steps, 1)), index) if form.is_reversed else index
            place = self._place(asm.add(asm.mul(time, form.batch), self._row), now, then)
            for number in range(1, len(form.products) + 1):
                self._compute(index, Phase(self._of, asm, self._memories, number, place))
            return [then, now]

        asm.loop(0, steps, 1, [asm.value(0), asm.value(self._size)], step)
        if form.last_state is not None:
            self._end(form.last_state)

    def _allocated(self, elements: int) -> Slot:
        """Memory of the workgroup."""
        return self._asm.scratch(elements, ir.F32Type.get()), 0

    def _compute(self, index: Index, phase: Phase) -> None:
        """Emit a phase of step ``index``."""
        phase.write()

    def _place(self, row: Index, now: Index, then: Index) -> Place:
        """Where a step reads and writes: ``now`` and ``then`` are offsets of states that are kept twice."""
        asm, both = self._asm, list(zip(self._states, self._of.multiplied, strict=True))

        def states(offset: Index) -> tuple[Slot, ...]:
            return tuple((memory, asm.add(begin, offset if twice else 0)) for (memory, begin), twice in both)

        return Place(row, states(now), states(then), self._stored, self._of.padded, is_shared=self._of.shares > 1)

    def _begin(self) -> None:
        """Copy the initial states into their memory."""
        width = self._of.form.hidden
        for state, argument in zip(self._states, self._of.form.initial, strict=True):
            given = self._memories[argument], self._asm.mul(self._row, width), width
            self._copy(given, (*state, self._of.padded))

    def _end(self, state: int) -> None:
        """Copy the last value of a state into the row after the last step."""
        form, asm = self._of.form, self._asm
        steps, (memory, begin) = asm.size(form.steps), self._states[state]
        # What is kept twice is where the last step of an odd or an even number of them leaves it.
        turned = asm.mul(asm.divide(steps, 2)[1], self._size) if self._of.multiplied[state] else 0
        last = asm.add(begin, turned)
        offset = asm.mul(asm.add(self._row, asm.mul(steps, form.batch)), form.hidden)
        self._copy((memory, last, self._of.padded), (self._memories[self._of.result], offset, form.hidden))

    def _copy(self, origin: Rows, target: Rows) -> None:
        """Copy rows of a state between memories."""
        asm = self._asm

        def part(number: int, start: Index, count: int) -> None:
            (read, first, width), (written, into, pitch) = origin, target
            loaded = asm.load(read, asm.add(first, number * width, start), count)
            asm.store(loaded, written, asm.add(into, number * pitch, start), count)

        for number in range(self._of.rows):
            asm.by_steps(self._of.form.hidden, asm.lanes, partial(part, number))


class _SharingWriter(_Writer):
    """The same where several workgroups share the steps, and the memory of states."""

    def __init__(self, of: StepsKernel, asm: Assembler, memories: Sequence[ir.Value], row: Index, share: Index) -> None:
        self._run, _ = asm.divide(row, of.rows)
        *_, self._workspace, self._flags = memories
        self._used = 0
        super().__init__(of, asm, memories, row, share)

    def _allocated(self, elements: int) -> Slot:
        begin = self._asm.add(self._asm.mul(self._run, self._of.states_of_run), self._used)
        self._used += elements
        return self._workspace, begin

    def _begin(self) -> None:
        # A late workgroup would overwrite states of later steps.
        self._alone(0, super()._begin)

    def _end(self, state: int) -> None:
        self._alone(flags_of(1) + flags_of(self._of.shares), lambda: super(_SharingWriter, self)._end(state))

    def _compute(self, index: Index, phase: Phase) -> None:
        asm, shares, phases = self._asm, self._of.shares, len(self._of.form.products)
        number = asm.add(asm.mul(index, phases), phase.number - 1)
        meeting = Meeting(asm, self._flags, self._flags_at(flags_of(1)), number, self._share, shares)
        meeting.share(lambda part: phase.write(part, shares))

    def _alone(self, begin: int, write: Callable[[], None]) -> None:
        """Emit what one workgroup does and the others wait for, by flags that begin there among those of these rows."""
        Meeting(self._asm, self._flags, self._flags_at(begin), 0, 0, 1).share(lambda _: write())

    def _flags_at(self, begin: int) -> Index:
        return self._asm.add(self._asm.mul(self._run, self._of.flags_of_run), begin)

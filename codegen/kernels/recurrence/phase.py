"""A part of a step of a recurrent layer: one product with the state, and the elementwise ops that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import emit_region
from sartor.codegen.kernels.recurrence.form import CarriedState, Column, InputGate, Operand, Recurrence, StateGate
from sartor.codegen.mlir.iree_compiler import ir, vector
from sartor.codegen.mlir.operations import source

Sums: TypeAlias = Mapping[tuple[int, int, int], ir.Value]
"""Sums of a product by row of the batch, gate, and vector of the block."""


class Blocking(Protocol):
    """How a kernel divides a step."""

    @property
    def form(self) -> Recurrence:
        """What a step computes."""

    @property
    def result(self) -> int:
        """Position of the result among the buffers."""

    @property
    def block(self) -> int:
        """Elements of the state in a block."""

    @property
    def unroll(self) -> int:
        """Rows of a matrix in an iteration of the reduction."""

    @property
    def rows(self) -> int:
        """Rows of the batch that are computed together."""


@dataclass(frozen=True)
class Scratch:
    """Memory of a workgroup.

    Attributes:
        states: a memory for each state.
        doubled: whether a state's memory holds two values, of this step and of the next.
        stored: memories of values that are read after another product.
        pitch: elements from one row to the next.
    """

    states: tuple[ir.Value, ...]
    doubled: tuple[bool, ...]
    stored: Mapping[ir.Value, ir.Value]
    pitch: int


@dataclass(frozen=True)
class Place:
    """Where a step reads and writes.

    Attributes:
        row: row of the inputs, and of the result.
        now: offset of doubled states of this step.
        then: offset of those of the next step.
    """

    row: Index
    now: Index
    then: Index


@dataclass(frozen=True)
class Phase:
    """One product of a step, block by block.

    Attributes:
        of: how the kernel divides a step.
        asm: emits the code.
        memories: buffers of the kernel.
        scratch: memory of the workgroup.
        number: how many products are complete at its end.
        place: the step.
    """

    of: Blocking
    asm: Assembler
    memories: Sequence[ir.Value]
    scratch: Scratch
    number: int
    place: Place

    def write(self) -> None:
        """Emit all blocks."""
        self.asm.by_steps(self.of.form.hidden, self.of.block, self._write_block)

    def _write_block(self, start: Index, length: int) -> None:
        lanes = self.asm.lanes
        vectors = -(-length // lanes)
        sums = self._sums(start, vectors)
        for row in range(self.of.rows):
            for index in range(vectors):
                count = min(lanes, length - index * lanes)
                _Part(self, sums, row, index, self.asm.add(start, index * lanes), count).write()

    def _sums(self, start: Index, vectors: int) -> Sums:
        """Emit the reduction for a block."""
        asm, product, block = self.asm, self.of.form.products[self.number - 1], self.of.block
        keys = [
            (row, gate, index)
            for row in range(self.of.rows)
            for gate in range(product.gates)
            for index in range(vectors)
        ]
        memory, begin = self._factor(product.factor)
        matrix, line = self.memories[product.matrix], product.gates * block
        base = asm.mul(start, self.of.form.hidden * product.gates)

        def several(depth: Index, sums: list[ir.Value]) -> list[ir.Value]:
            found = dict(zip(keys, sums, strict=True))
            for index in range(self.of.unroll):
                origin = asm.add(base, asm.mul(depth, line), index * line)
                for row in range(self.of.rows):
                    offset = asm.add(begin, depth, row * self.scratch.pitch + index)
                    factor = asm.broadcast(memory, offset)
                    for key in [each for each in keys if each[0] == row]:
                        at = asm.add(origin, key[1] * block + key[2] * asm.lanes)
                        found[key] = vector.fma(asm.load(matrix, at, asm.lanes), factor, found[key])
            return list(found.values())

        zeros = [asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))] * len(keys)
        found = asm.loop(0, self.of.form.hidden, self.of.unroll, zeros, several)
        return dict(zip(keys, found, strict=True))

    def _factor(self, factor: Operand) -> tuple[ir.Value, Index]:
        """The memory that holds what is multiplied, and its offset."""
        if isinstance(factor, CarriedState):
            return self.scratch.states[factor.number], self.place.now
        assert isinstance(factor, ir.Value)
        return self.scratch.stored[factor], 0


class _Part:
    """Emits a vector of a row of the state: what follows from the sums."""

    def __init__(self, of: Phase, sums: Sums, row: int, index: int, column: Index, count: int) -> None:
        self._of = of
        self._asm = of.asm
        self._form = of.of.form
        self._sums = sums
        self._row = row
        self._index = index
        self._column = column
        self._count = count
        self._known: dict[Operand, ir.Value] = {}

    def write(self) -> None:
        """Emit all values of the phase, then their stores: a state is overwritten only after it was read."""
        number = self._of.number
        stored = [each for each in self._of.scratch.stored if self._form.phase(each) == number]
        states = [index for index, each in enumerate(self._form.next) if max(1, self._form.phase(each)) == number]
        for each in (*stored, *(self._form.next[index] for index in states)):
            self._value(each)
        for value in stored:
            self._keep(self._known[value], self._of.scratch.stored[value], 0)
        for state in states:
            self._keep_state(state, self._known[self._form.next[state]])

    def _keep_state(self, state: int, value: ir.Value) -> None:
        scratch = self._of.scratch
        self._keep(value, scratch.states[state], self._of.place.then if scratch.doubled[state] else 0)
        if state == self._form.hidden_state:
            row = self._asm.add(self._of.place.row, self._row)
            offset = self._asm.add(self._asm.mul(row, self._form.hidden), self._column)
            self._asm.store(value, self._of.memories[self._of.of.result], offset, self._count)

    def _keep(self, value: ir.Value, memory: ir.Value, begin: Index) -> None:
        self._asm.store(value, memory, self._inside(begin), self._asm.lanes)

    def _inside(self, begin: Index) -> Index:
        """Offset of the vector in scratch memory."""
        return self._asm.add(begin, self._column, self._row * self._of.scratch.pitch)

    def _value(self, operand: Operand) -> ir.Value:
        if operand not in self._known:
            self._known[operand] = self._found(operand)
        return self._known[operand]

    def _found(self, operand: Operand) -> ir.Value:
        asm, memories = self._asm, self._of.memories
        if isinstance(operand, InputGate):
            row = asm.mul(asm.add(self._of.place.row, self._row), self._form.input_columns)
            offset = asm.add(row, self._column, operand.column)
            return asm.load(memories[self._form.inputs], offset, self._count)
        if isinstance(operand, StateGate):
            return self._sums[self._row, operand.gate, self._index]
        if isinstance(operand, CarriedState):
            begin = self._of.place.now if self._of.scratch.doubled[operand.number] else 0
            return asm.load(self._of.scratch.states[operand.number], self._inside(begin), asm.lanes)
        if isinstance(operand, Column):
            return asm.load(memories[operand.memory], self._column, self._count)
        if operand in self._of.scratch.stored and self._form.phase(operand) < self._of.number:
            return asm.load(self._of.scratch.stored[operand], self._inside(0), asm.lanes)
        return emit_region(asm, source(operand), [self._value(each) for each in self._form.maps[operand]])

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

# Floats of a cache line, and from those that are read to those that are fetched meanwhile. The hardware's prefetchers
# follow a core that computes for each line too late.
_LINE, _AHEAD = 16, 512

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

    @property
    def streams(self) -> bool:
        """Whether matrices come from beyond the second-level cache in each step."""


Slot: TypeAlias = tuple[ir.Value, Index]
"""A memory, and the offset of a value's first row in it."""


@dataclass(frozen=True)
class Place:
    """Where a step reads and writes.

    Attributes:
        row: row of the inputs, and of the result.
        now: the states of this step.
        then: those of the next step.
        stored: values that are read after another product.
        pitch: elements from one row of these to the next.
        is_shared: whether other workgroups read what the step writes.
    """

    row: Index
    now: tuple[Slot, ...]
    then: tuple[Slot, ...]
    stored: Mapping[ir.Value, Slot]
    pitch: int
    is_shared: bool = False


@dataclass(frozen=True)
class Phase:
    """One product of a step, block by block.

    Attributes:
        of: how the kernel divides a step.
        asm: emits the code.
        memories: buffers of the kernel.
        number: how many products are complete at its end.
        place: the step.
    """

    of: Blocking
    asm: Assembler
    memories: Sequence[ir.Value]
    number: int
    place: Place

    def write(self, part: Index = 0, parts: int = 1) -> None:
        """Emit the blocks of one of equal parts; the last block may be shorter."""
        asm, hidden, block = self.asm, self.of.form.hidden, self.of.block
        blocks, whole = -(-hidden // block), hidden // block
        begin, end = (asm.divide(asm.mul(number, blocks), parts)[0] for number in (part, asm.add(part, 1)))
        bounds = asm.mul(begin, block), asm.mul(asm.minimum(end, whole), block)
        asm.repeat(*bounds, block, lambda start: self._write_block(start, block))
        if blocks > whole:
            last = whole * block
            asm.when(asm.equal(end, blocks), lambda: self._write_block(last, hidden - last))

    def _write_block(self, start: Index, length: int) -> None:
        lanes = self.asm.lanes
        vectors = -(-length // lanes)
        if self.place.is_shared:
            self._fetch(start, vectors)
        sums = self._sums(start, vectors)
        for row in range(self.of.rows):
            for index in range(vectors):
                count = min(lanes, length - index * lanes)
                _Part(self, sums, row, index, self.asm.add(start, index * lanes), count).write()

    def _fetch(self, start: Index, vectors: int) -> None:
        """Prefetch what a block writes, which another core has read: who waits for the block waits for that, too."""
        asm, form = self.asm, self.of.form
        stored = [self.place.stored[value] for value in self.place.stored if form.phase(value) == self.number]
        states = [self.place.then[index] for index, _ in form.states_of(self.number)]
        for memory, begin in (*stored, *states):
            for row in range(self.of.rows):
                for index in range(vectors):
                    offset = asm.add(begin, start, row * self.place.pitch + index * asm.lanes)
                    asm.prefetch(memory, offset, is_written=True)

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
            sums_by_key = dict(zip(keys, sums, strict=True))
            for index in range(self.of.unroll):
                origin = asm.add(base, asm.mul(depth, line), index * line)
                self._fetch_ahead(matrix, origin, line)
                for row in range(self.of.rows):
                    offset = asm.add(begin, depth, row * self.place.pitch + index)
                    factor = asm.broadcast(memory, offset)
                    for key in [pair for pair in keys if pair[0] == row]:
                        at = asm.add(origin, key[1] * block + key[2] * asm.lanes)
                        sums_by_key[key] = vector.fma(asm.load(matrix, at, asm.lanes), factor, sums_by_key[key])
            return list(sums_by_key.values())

        zeros = [asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))] * len(keys)
        totals = asm.loop(0, self.of.form.hidden, self.of.unroll, zeros, several)
        return dict(zip(keys, totals, strict=True))

    def _fetch_ahead(self, matrix: ir.Value, origin: Index, line: int) -> None:
        """Fetch a row of a block that is read soon, of matrices that lie beyond the second-level cache."""
        for place in range(0, line if self.of.streams else 0, _LINE):
            self.asm.prefetch_stream(matrix, self.asm.add(origin, _AHEAD + place))

    def _factor(self, factor: Operand) -> Slot:
        """The memory that holds what is multiplied, and its offset."""
        if isinstance(factor, CarriedState):
            return self.place.now[factor.number]
        assert isinstance(factor, ir.Value)
        return self.place.stored[factor]


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
        stored = [value for value in self._of.place.stored if self._form.phase(value) == number]
        states = self._form.states_of(number)
        for kept_value in (*stored, *(value for _, value in states)):
            self._value(kept_value)
        for value in stored:
            self._keep(self._known[value], self._of.place.stored[value])
        for state, state_value in states:
            self._keep_state(state, self._known[state_value])

    def _keep_state(self, state: int, value: ir.Value) -> None:
        self._keep(value, self._of.place.then[state])
        if state == self._form.hidden_state:
            row = self._asm.add(self._of.place.row, self._row)
            offset = self._asm.add(self._asm.mul(row, self._form.hidden), self._column)
            self._asm.store(value, self._of.memories[self._of.of.result], offset, self._count)

    def _keep(self, value: ir.Value, slot: Slot) -> None:
        self._asm.store(value, slot[0], self._inside(slot[1]), self._asm.lanes)

    def _kept(self, slot: Slot) -> ir.Value:
        return self._asm.load(slot[0], self._inside(slot[1]), self._asm.lanes)

    def _inside(self, begin: Index) -> Index:
        """Offset of the vector in a state's memory."""
        return self._asm.add(begin, self._column, self._row * self._of.place.pitch)

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
            return self._kept(self._of.place.now[operand.number])
        if isinstance(operand, Column):
            return asm.load(memories[operand.memory], self._column, self._count)
        if operand in self._of.place.stored and self._form.phase(operand) < self._of.number:
            return self._kept(self._of.place.stored[operand])
        return emit_region(asm, source(operand), [self._value(read_value) for read_value in self._form.maps[operand]])

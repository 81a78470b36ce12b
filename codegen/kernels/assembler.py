"""Emitting MLIR at the current insertion point, folding whatever is known already."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sartor.codegen.iree_compiler import arith, ir, memref, scf, vector

Index: TypeAlias = int | ir.Value
# Locality of LLVM's prefetch: 3 is the first level, 0 none.
_SECOND_LEVEL = 2
_ALIGNMENT = 64

Condition: TypeAlias = bool | ir.Value
Body = Callable[[Index, list[ir.Value]], list[ir.Value]]


class Assembler:
    """Writes one kernel: arithmetic on indices, vectors of ``lanes`` elements, loops that carry vectors.

    Args:
        entry: block of the kernel's function; constants go to its beginning.
        lanes: elements of a vector.
    """

    def __init__(self, entry: ir.Block, lanes: int) -> None:
        self.lanes = lanes
        self._entry = entry
        self._constants: dict[int, ir.Value] = {}
        self._splats: dict[tuple[str, str], ir.Value] = {}

    def value(self, index: Index) -> ir.Value:
        """An index as a value."""
        if not isinstance(index, int):
            return index
        if index not in self._constants:
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._constants[index] = arith.constant(ir.IndexType.get(), index)
        return self._constants[index]

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        """A vector that repeats a scalar constant."""
        key = str(attribute), str(attribute.type)
        if key not in self._splats:
            kind = self.vector_type(attribute.type)
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._splats[key] = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))
        return self._splats[key]

    def vector_type(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType.get([self.lanes], element)

    def add(self, *terms: Index) -> Index:
        """The sum; constants are added up last, where address computation takes them for free."""
        total: ir.Value | None = None
        constant = 0
        for term in terms:
            if isinstance(term, int):
                constant += term
            else:
                total = term if total is None else arith.addi(total, term)
        if total is None:
            return constant
        return arith.addi(total, self.value(constant)) if constant else total

    def mul(self, index: Index, factor: int) -> Index:
        if isinstance(index, int):
            return index * factor
        if factor in (0, 1):
            return index if factor else 0
        return arith.muli(index, self.value(factor))

    def times(self, one: Index, other: Index) -> Index:
        """The product of two indices."""
        if isinstance(other, int):
            return self.mul(one, other)
        return self.mul(other, one) if isinstance(one, int) else arith.muli(one, other)

    def sub(self, index: Index, other: Index) -> Index:
        if isinstance(other, int):
            return self.add(index, -other)
        return arith.subi(self.value(index), other)

    def divide_up(self, index: Index, divisor: int) -> Index:
        """``index / divisor`` rounded towards positive infinity; ``index`` may be negative."""
        if isinstance(index, int):
            return -(-index // divisor)
        return index if divisor == 1 else arith.ceildivsi(index, self.value(divisor))

    def divide(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Quotient and remainder of an index that is not negative."""
        if isinstance(index, int):
            return divmod(index, divisor)
        quotient = index if divisor == 1 else arith.divui(index, self.value(divisor))
        return quotient, self.sub(index, self.mul(quotient, divisor))

    def sum_of(self, one: ir.Value, other: ir.Value) -> ir.Value:
        """The sum of two vectors of floats."""
        return arith.addf(one, other)

    def minimum(self, one: Index, other: Index) -> Index:
        if isinstance(one, int) and isinstance(other, int):
            return min(one, other)
        return arith.minsi(self.value(one), self.value(other))

    def maximum(self, one: Index, other: Index) -> Index:
        if isinstance(one, int) and isinstance(other, int):
            return max(one, other)
        return arith.maxsi(self.value(one), self.value(other))

    def load(self, memory: ir.Value, offset: Index, count: int, present: Condition = True) -> ir.Value:
        """A vector from ``offset`` on, of whose elements the first ``count`` are read and the others are zero.

        Args:
            memory: what to read.
            offset: of the first element.
            count: how many elements to read.
            present: if false, nothing is read and all elements are zero.
        """
        element = ir.MemRefType(memory.type).element_type
        kind = self.vector_type(element)
        if count == self.lanes and present is True:
            return vector.load(kind, memory, [self.value(offset)])
        zero = self.splat(ir.FloatAttr.get(element, 0.0))
        return vector.maskedload(kind, memory, [self.value(offset)], self._mask(count, present), zero)

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Write the first ``count`` elements of a vector from ``offset`` on."""
        if count == self.lanes:
            vector.store(stored, memory, [self.value(offset)])
        else:
            vector.maskedstore(memory, [self.value(offset)], self._mask(count), stored)

    def _mask(self, count: int, present: Condition = True) -> ir.Value:
        kind = self.vector_type(ir.IntegerType.get_signless(1))
        if isinstance(present, bool):
            return vector.create_mask(kind, [self.value(count if present else 0)])
        every = vector.broadcast(kind, present)
        if count == self.lanes:
            return every
        return arith.andi(every, vector.create_mask(kind, [self.value(count)]))

    def scratch(self, elements: int, element: ir.Type) -> ir.Value:
        """Memory of the workgroup alone, on the stack of its thread."""
        with ir.InsertionPoint.at_block_begin(self._entry):
            kind = ir.MemRefType.get([elements], element)
            return memref.alloca(kind, [], [], alignment=_ALIGNMENT)

    def prefetch(self, memory: ir.Value, offset: Index) -> None:
        """Fetch what lies at ``offset``, which may be beyond the end, into the second-level cache."""
        memref.prefetch(memory, [self.value(offset)], False, _SECOND_LEVEL, True)

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        """A vector that repeats one element of memory."""
        scalar = memref.load(memory, [self.value(offset)])
        return vector.broadcast(self.vector_type(scalar.type), scalar)

    def loop(self, lower: Index, upper: Index, step: int, carried: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """``for index in range(lower, upper, step)``, written out where there is at most one turn.

        Args:
            lower: first index.
            upper: end.
            step: distance of indices.
            carried: values that one turn hands to the next.
            body: writes one turn, returns the values it hands on.
        """
        if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= step:
            return body(lower, list(carried)) if lower < upper else list(carried)
        loop = scf.ForOp(self.value(lower), self.value(upper), self.value(step), list(carried))
        with ir.InsertionPoint(loop.body):
            scf.yield_(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)

    def repeat(self, lower: Index, upper: Index, step: int, body: Callable[[Index], None]) -> None:
        """``for index in range(lower, upper, step)``, nothing carried."""

        def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            body(index)
            return carried

        self.loop(lower, upper, step, [], every)

    def equal(self, one: Index, other: Index) -> Condition:
        """Whether two indices are equal."""
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return arith.cmpi(arith.CmpIPredicate.eq, self.value(one), self.value(other))

    def within(self, index: Index, end: int) -> Condition:
        """Whether ``0 <= index < end``."""
        if isinstance(index, int):
            return 0 <= index < end
        if end <= 0:
            return False
        return arith.cmpi(arith.CmpIPredicate.ult, index, self.value(end))

    def all_of(self, *conditions: Condition) -> Condition:
        """Whether all conditions hold."""
        if any(each is False for each in conditions):
            return False
        open_ones = [each for each in conditions if each is not True]
        return functools.reduce(arith.andi, open_ones) if open_ones else True

    def when(self, condition: Condition, body: Callable[[], None]) -> None:
        """Run ``body`` if a condition holds."""
        self.branch(condition, body, None)

    def branch(self, condition: Condition, then: Callable[[], None], otherwise: Callable[[], None] | None) -> None:
        """Run one of two bodies."""
        if isinstance(condition, bool):
            chosen = then if condition else otherwise
            if chosen is not None:
                chosen()
            return
        branch = scf.IfOp(condition, has_else=otherwise is not None)
        with ir.InsertionPoint(branch.then_block):
            then()
            scf.yield_([])
        if otherwise is not None:
            with ir.InsertionPoint(branch.else_block):
                otherwise()
                scf.yield_([])

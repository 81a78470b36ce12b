"""Emit a kernel's MLIR for a GPU with two adjacent elements of each vector in an invocation.

Where a load of 64 bits takes little longer than one of 32, as with Mesa's software driver, kernels whose lanes do not
exchange numbers need half of the loads so.
"""

from __future__ import annotations

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.invocations import InvocationAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.mlir.iree_compiler import arith, ir, memref, scf, vector

TOGETHER = 2
"""Elements of a vector in an invocation."""

_NARROW = (ir.BF16Type, ir.F16Type)


class PairedInvocationAssembler(InvocationAssembler):
    """Emits the code of one invocation, whose numbers are vectors of two.

    Vectors begin at even elements of memories with an even number of them. Arguments are those of
    ``InvocationAssembler``; ``lanes`` is twice the number of invocations.
    """

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        """A vector that repeats a scalar constant."""
        return Assembler.splat(self, attribute)

    def vector_type(self, element: ir.Type) -> ir.Type:
        """The type of an invocation's elements of a vector."""
        return ir.VectorType.get([TOGETHER], element)

    def repeated(self, numbers: ir.Value, index: int) -> ir.Value:
        """Not there.

        Raises:
            TypeError: always.
        """
        raise TypeError("invocations with two elements do not exchange any")

    def rotated(self, numbers: ir.Value, distance: int) -> ir.Value:
        """Not there.

        Raises:
            TypeError: always.
        """
        raise TypeError("invocations with two elements do not exchange any")

    def load_as_stored(
        self, memory: ir.Value, offset: Index, count: int, present: Condition = True, size: int | None = None
    ) -> ir.Value:
        """The invocation's elements, in the memory's own type; zeros if they are not among the first ``count``."""
        element = ir.MemRefType(memory.type).element_type
        words = self._words(memory, TOGETHER * element.width)
        here = self.value(self.add(self._lane, self.divide(offset, TOGETHER)[0]))
        exists = self._exists(count, present)
        if exists is None:
            return self._of_word(memref.load(words, [here]), element)
        # The first word always exists, so that no branch is needed.
        found = self._of_word(memref.load(words, [arith.select(exists, here, self.value(0))]), element)
        return arith.select(exists, found, self.splat(ir.FloatAttr.get(element, 0.0)))

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Write the invocation's numbers, rounded to the memory's type, if they are among the first ``count``."""
        element = ir.MemRefType(memory.type).element_type
        word = ir.IntegerType.get_signless(TOGETHER * element.width)
        both = vector.bitcast(ir.VectorType.get([1], word), self.rounded(stored, element))
        words, here = self._words(memory, word.width), self.value(self.add(self._lane, self.divide(offset, 2)[0]))
        exists = self._exists(count)
        if exists is None:
            memref.store(vector.extract(both, [], [0]), words, [here])
            return
        branch = scf.IfOp(exists)
        with ir.InsertionPoint(branch.then_block):
            memref.store(vector.extract(both, [], [0]), words, [here])
            scf.yield_([])

    def rounded(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Round numbers of f32 to a narrower type."""
        kind = self.vector_type(element)
        return value if value.type == kind else arith.truncf(kind, value)

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        """An element that all invocations read, twice."""
        found = memref.load(memory, [self.value(offset)])
        return self._real(memory, vector.broadcast(self.vector_type(found.type), found))

    def _of_word(self, word: ir.Value, element: ir.Type) -> ir.Value:
        one = vector.broadcast(ir.VectorType.get([1], word.type), word)
        return vector.bitcast(self.vector_type(element), one)

    def _exists(self, count: int, present: Condition = True) -> ir.Value | None:
        """Whether the invocation has elements; None if all have.

        Raises:
            ValueError: if an invocation has one.
        """
        if count % TOGETHER:
            raise ValueError(f"{count} elements are not pairs")
        inside = None if count >= self.lanes else self.first_lanes(count // TOGETHER)
        if present is True:
            return inside
        given = arith.constant(ir.IntegerType.get_signless(1), int(present)) if isinstance(present, bool) else present
        return given if inside is None else arith.andi(given, inside)

    def _real(self, memory: ir.Value, value: ir.Value) -> ir.Value:
        if memory in self._scales:
            raise ValueError("kernels for GPUs do not read quantised tensors")
        narrow = isinstance(ir.VectorType(value.type).element_type, _NARROW)
        return arith.extf(self.vector_type(ir.F32Type.get()), value) if narrow else value

"""Emit a kernel's MLIR for a GPU: each lane of a vector is an invocation, whose number is a scalar.

A workgroup is one subgroup, so all its invocations run the same loops, and lanes exchange numbers by shuffles. The
kernels are those of the CPU: an operation on vectors becomes one on scalars, an element that a vector repeats a load
that all invocations share, and adjacent elements a load that is coalesced over the subgroup.
"""

from __future__ import annotations

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.mlir.iree_compiler import arith, gpu, ir, math, memref, scf, vector

_NARROW = (ir.BF16Type, ir.F16Type)


class InvocationAssembler(Assembler):
    """Emits the code of one invocation.

    Args:
        entry: block of the kernel's function; constants go to its beginning.
        lanes: invocations of a subgroup.
        lane: index of the invocation.
    """

    has_scratch = False
    equal_shares = True
    reassociates = True
    indexes = True

    def __init__(self, entry: ir.Block, lanes: int, lane: ir.Value) -> None:
        super().__init__(entry, lanes)
        self._lane = lane
        self._wide: dict[tuple[ir.Value, int], ir.Value] = {}

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        """A scalar constant."""
        key = str(attribute), str(attribute.type)
        if key not in self._splats:
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._splats[key] = arith.constant(attribute.type, attribute)
            if isinstance(attribute.type, ir.F32Type):
                self.known.constants[self._splats[key]] = float(ir.FloatAttr(attribute).value)
        return self._splats[key]

    def vector_type(self, element: ir.Type) -> ir.Type:
        """The type of an invocation's element of a vector."""
        return element

    def multiply_add(self, one: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
        """The product of two numbers, added to a third and rounded once."""
        return math.fma(one, other, total)

    def repeated(self, numbers: ir.Value, index: int) -> ir.Value:
        """The number of another invocation, by its constant index."""
        return self._shuffled(numbers, self.integer(index, 32))

    def rotated(self, numbers: ir.Value, distance: int) -> ir.Value:
        """The number of the invocation ``distance`` further on, around the end."""
        source = arith.index_cast(ir.IntegerType.get_signless(32), self.value(self.add(self._lane, distance)))
        return self._shuffled(numbers, arith.andi(source, self.integer(self.lanes - 1, 32)))

    def _shuffled(self, numbers: ir.Value, source: ir.Value) -> ir.Value:
        shuffled: ir.Value = gpu.shuffle(numbers, source, self.integer(self.lanes, 32), gpu.ShuffleMode.IDX)[0]
        return shuffled

    def load_as_stored(
        self, memory: ir.Value, offset: Index, count: int, present: Condition = True, size: int | None = None
    ) -> ir.Value:
        """The invocation's element, in the memory's own type; zero if it is not one of the first ``count``."""
        element = ir.MemRefType(memory.type).element_type
        here = self.value(self.add(self._lane, offset))
        exists = self._exists(count, present)
        if exists is None:
            return memref.load(memory, [here])
        # The first element always exists, so that no branch is needed.
        loaded = memref.load(memory, [arith.select(exists, here, self.value(0))])
        zero = ir.IntegerAttr.get(element, 0) if isinstance(element, ir.IntegerType) else ir.FloatAttr.get(element, 0.0)
        return arith.select(exists, loaded, self.splat(zero))

    def load_pair(self, memory: ir.Value, offset: Index) -> tuple[ir.Value, ir.Value]:
        """The invocation's two adjacent numbers of f32, by one load of 64 bits; ``offset`` must be even."""
        halved = self.divide(offset, 2)[0]
        return self._both(memref.load(self._words(memory, 64), [self.value(self.add(self._lane, halved))]))

    def broadcast_pair(self, memory: ir.Value, offset: Index) -> tuple[ir.Value, ir.Value]:
        """Two adjacent numbers of f32 that all invocations read; ``offset`` must be even."""
        return self._both(memref.load(self._words(memory, 64), [self.value(self.divide(offset, 2)[0])]))

    def load_word(self, memory: ir.Value, offset: Index) -> ir.Value:
        """The invocation's two adjacent numbers of f16, as one word of 32 bits; ``offset`` must be even."""
        return memref.load(self._words(memory, 32), [self.value(self.add(self._lane, self.divide(offset, 2)[0]))])

    def broadcast_word(self, memory: ir.Value, offset: Index) -> ir.Value:
        """Two adjacent numbers of f16 that all invocations read, as one word; ``offset`` must be even."""
        return memref.load(self._words(memory, 32), [self.value(self.divide(offset, 2)[0])])

    def halves(self, word: ir.Value) -> ir.Value:
        """Both numbers of f16 of a word of 32 bits, as a vector."""
        one = vector.broadcast(ir.VectorType.get([1], word.type), word)
        return vector.bitcast(ir.VectorType.get([2], ir.F16Type.get()), one)

    def no_halves(self) -> ir.Value:
        """A vector of two zeros of f16."""
        kind = ir.VectorType.get([2], ir.F16Type.get())
        with ir.InsertionPoint.at_block_begin(self._entry):
            return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 0.0)))

    def _both(self, word: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Both numbers of f32 of a word of 64 bits."""
        half, real = ir.IntegerType.get_signless(32), ir.F32Type.get()
        high = arith.shrui(word, self.integer(32, 64))
        return arith.bitcast(real, arith.trunci(half, word)), arith.bitcast(real, arith.trunci(half, high))

    def _words(self, memory: ir.Value, bits: int) -> ir.Value:
        """A memory as words of so many bits, each of some elements: the same binding, declared once more."""
        if (memory, bits) not in self._wide:
            span, kind = memory.owner, ir.MemRefType(memory.type)
            count = kind.shape[0] * kind.element_type.width // bits
            words = ir.MemRefType.get([count], ir.IntegerType.get_signless(bits), None, kind.memory_space)
            attributes = {name: span.attributes[name] for name in span.attributes}
            with ir.InsertionPoint.after(span):
                made = ir.Operation.create(
                    span.name, results=[words], operands=list(span.operands), attributes=attributes
                )
            self._wide[memory, bits] = made.results[0]
        return self._wide[memory, bits]

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Write the invocation's number, rounded to the memory's type, if it is one of the first ``count``."""
        stored = self.rounded(stored, ir.MemRefType(memory.type).element_type)
        here = self.value(self.add(self._lane, offset))
        exists = self._exists(count)
        if exists is None:
            memref.store(stored, memory, [here])
            return
        branch = scf.IfOp(exists)
        with ir.InsertionPoint(branch.then_block):
            memref.store(stored, memory, [here])
            scf.yield_([])

    def load_floats(self, memory: ir.Value, offset: Index) -> ir.Value:
        """The invocation's number of a memory of f32."""
        return memref.load(memory, [self.value(self.add(self._lane, offset))])

    def load_words(self, memory: ir.Value, offset: Index, kind: ir.Type) -> ir.Value:
        """The invocation's integer of ``kind`` in a memory of shorter elements; ``offset`` is a multiple of as many."""
        elements = kind.width // ir.MemRefType(memory.type).element_type.width
        place = self.add(self._lane, self.divide(offset, elements)[0])
        return memref.load(self._words(memory, kind.width), [self.value(place)])

    def store_words(self, stored: ir.Value, memory: ir.Value, offset: Index) -> None:
        """Write the invocation's number to a memory of its type."""
        memref.store(stored, memory, [self.value(self.add(self._lane, offset))])

    def barrier(self) -> None:
        """Let invocations read what others of the workgroup stored; all of them get here.

        The barrier of the dialect for GPUs is for the memory of a workgroup, not for buffers.
        """
        scope = ir.Attribute.parse("#spirv.scope<Workgroup>")
        order = ir.Attribute.parse("#spirv.memory_semantics<AcquireRelease|UniformMemory>")
        attributes = {"execution_scope": scope, "memory_scope": scope, "memory_semantics": order}
        ir.Operation.create("spirv.ControlBarrier", attributes=attributes)

    def rounded(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Round a number of f32 to a narrower type."""
        return value if value.type == element else arith.truncf(element, value)

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        """An element that all invocations read."""
        return self.real(memory, memref.load(memory, [self.value(offset)]))

    def first_lanes(self, count: int) -> ir.Value:
        """Whether the invocation is one of the first ``count``."""
        return arith.cmpi(arith.CmpIPredicate.ult, self._lane, self.value(count))

    def prefetch(self, memory: ir.Value, offset: Index, *, is_written: bool = False) -> None:
        """Nothing: a GPU hides the time of a load behind other subgroups."""

    def prefetch_stream(self, memory: ir.Value, offset: Index) -> None:
        """Nothing, for the same reason."""

    def _exists(self, count: int, present: Condition = True) -> ir.Value | None:
        """Whether the invocation has an element; None if all have one."""
        inside = None if count >= self.lanes else self.first_lanes(count)
        if present is True:
            return inside
        given = arith.constant(ir.IntegerType.get_signless(1), int(present)) if isinstance(present, bool) else present
        return given if inside is None else arith.andi(given, inside)

    def real(self, memory: ir.Value, value: ir.Value) -> ir.Value:
        """Convert a loaded number to f32, in which all arithmetic is done.

        Raises:
            RejectionError: if the memory is quantised.
        """
        if memory in self._scales:
            raise RejectionError("kernels for GPUs do not read quantised tensors")
        return arith.extf(ir.F32Type.get(), value) if isinstance(value.type, _NARROW) else value

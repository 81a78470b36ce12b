"""Emit a kernel's MLIR at the current insertion point: vectors, loads and stores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sartor.codegen.kernels.emit.control_flow import ControlFlow
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.emit.known_values import Known
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, memref, vector

# Locality of LLVM's prefetch: 0 is none.
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2
_ALIGNMENT = 64
_LANES_OF_512 = 16
# A feature of CPUs whose instructions may multiply by one element of a vector.
_INDEXES = "neon"
_ROUNDS_TO_BF16 = "avx512bf16"
_FLOAT_BYTES = 4
# Of signed 8-bit integers.
_LIMITS = (-128.0, 127.0)
# Floats near this are integers, so that adding it rounds to nearest even.
_LARGE = 1.5 * 2**23
_NARROW = (ir.BF16Type, ir.F16Type)


class Scale(NamedTuple):
    """What quantised integers stand for: ``(integer - zero) * step``. The inverse is ``real * inverse + zero``,
    rounded.

    Attributes:
        step: vector of the scale.
        inverse: vector of its reciprocal.
        zero: vector of the zero point, in f32.
        number: the zero point as a scalar of 8 bits.
        known: the scale, if it is known at compile time.
    """

    step: ir.Value
    inverse: ir.Value
    zero: ir.Value
    number: ir.Value
    known: float | None


class Assembler(ControlFlow):
    """Emits one kernel: arithmetic on indices, vectors of ``lanes`` elements, loops that carry vectors.

    Args:
        entry: block of the kernel's function; constants go to its beginning.
        lanes: elements of a vector.
        features: CPU features, by LLVM's names.
        is_rough: whether results are stored in so few bits that rougher approximations of functions suffice.

        Attributes:
            known: facts about vectors that were found so far.
            has_scratch: whether a workgroup has memory of its own (``scratch``).
            reassociates: whether a later compiler may compute sums of floats in another order.
            equal_shares: whether workgroups get equal shares of the work, rather than shrinking ones.
    """

    has_scratch = True
    equal_shares = False
    reassociates = False

    def __init__(
        self, entry: ir.Block, lanes: int, features: frozenset[str] = frozenset(), *, is_rough: bool = False
    ) -> None:
        super().__init__(entry)
        self.lanes = lanes
        self.is_rough = is_rough
        self.known = Known()
        self._features = features
        self._splats: dict[tuple[str, str], ir.Value] = {}
        self._scales: dict[ir.Value, Scale] = {}

    def has(self, feature: str) -> bool:
        """Whether the CPU has a feature."""
        return feature in self._features

    @property
    def indexes(self) -> bool:
        """Whether one element of a vector may be repeated at no cost."""
        return self.has(_INDEXES)

    def integer(self, value: int, bits: int) -> ir.Value:
        """An integer constant of ``bits`` bits."""
        kind = ir.IntegerType.get_signless(bits)
        with ir.InsertionPoint.at_block_begin(self._entry):
            return arith.constant(kind, value)

    def quantise(self, memory: ir.Value, numbers: ir.Value, known: float | None = None) -> None:
        """Declare ``memory`` as quantised with the ``RANGE`` in the memory ``numbers``; ``known`` is the scale, if it
        is known at compile time."""
        step, zero, inverse = (self.broadcast(numbers, index) for index in range(3))
        number = arith.fptosi(ir.IntegerType.get_signless(8), memref.load(numbers, [self.value(1)]))
        self._scales[memory] = Scale(step, inverse, zero, number, known)

    def copy_scale(self, memory: ir.Value, other: ir.Value) -> None:
        """Declare that ``memory`` holds numbers with the scale of ``other``."""
        self._scales[memory] = self._scales[other]

    def scale_of(self, memory: ir.Value) -> Scale:
        """The scale of a quantised memory.

        Raises:
            KeyError: if ``quantise`` was not called for it.
        """
        return self._scales[memory]

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        """A vector that repeats a scalar constant."""
        key = str(attribute), str(attribute.type)
        if key not in self._splats:
            kind = self.vector_type(attribute.type)
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._splats[key] = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))
            if isinstance(attribute.type, ir.F32Type):
                self.known.constants[self._splats[key]] = float(ir.FloatAttr(attribute).value)
        return self._splats[key]

    def constant_vector(self, values: np.ndarray) -> ir.Value:
        """A vector of constants, as many as ``lanes``."""
        key = values.tobytes().hex(), values.dtype.name
        if key not in self._splats:
            attribute = ir.DenseElementsAttr.get(values)
            kind = self.vector_type(ir.ShapedType(attribute.type).element_type)
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._splats[key] = arith.constant(kind, ir.DenseElementsAttr.get(values, type=kind))
        return self._splats[key]

    def vector_type(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType.get([self.lanes], element)

    def multiply_add(self, one: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
        """The product of two vectors of floats, added to a third and rounded once."""
        return vector.fma(one, other, total)

    def repeated(self, numbers: ir.Value, index: int) -> ir.Value:
        """A vector that repeats one element of another."""
        return vector.shuffle(numbers, numbers, [index] * self.lanes)

    def rotated(self, numbers: ir.Value, distance: int) -> ir.Value:
        """A vector with each element taken from ``distance`` lanes further on, around the end."""
        return vector.shuffle(numbers, numbers, [(lane + distance) % self.lanes for lane in range(self.lanes)])

    def first_lanes(self, count: int) -> ir.Value:
        """A condition for each lane: whether it is one of the first ``count``."""
        return self._mask(count)

    def sum_of(self, one: ir.Value, other: ir.Value) -> ir.Value:
        """The sum of two vectors of floats."""
        return arith.addf(one, other)

    def load(self, memory: ir.Value, offset: Index, count: Index, present: Condition = True) -> ir.Value:
        """A vector from ``offset`` on, of whose elements the first ``count`` are read and the others are zero.

        Args:
            memory: what to read.
            offset: of the first element.
            count: how many elements to read.
            present: if false, nothing is read and all elements are zero.
        """
        return self.real(memory, self.load_as_stored(memory, offset, count, present))

    def load_as_stored(
        self, memory: ir.Value, offset: Index, count: Index, present: Condition = True, size: int | None = None
    ) -> ir.Value:
        """Like ``load``, in the memory's own element type, with its zero point for zero; a vector of ``size`` elements,
        by default ``lanes``."""
        element = ir.MemRefType(memory.type).element_type
        size = size or self.lanes
        kind = ir.VectorType.get([size], element)
        if count == size and present is True:
            return vector.load(kind, memory, [self.value(offset)])
        if memory in self._scales:
            zero = vector.broadcast(kind, self._scales[memory].number)
        else:
            attribute = ir.DenseElementsAttr.get_splat(kind, _zero(element))
            zero = self.splat(_zero(element)) if size == self.lanes else arith.constant(kind, attribute)
        return vector.maskedload(kind, memory, [self.value(offset)], self._mask(count, present, size), zero)

    def load_spread(self, memory: ir.Value, offset: Index, count: int, *, stride: int, lane: int) -> ir.Value:
        """A vector whose lanes from ``lane`` on are ``count`` elements ``stride`` apart, and whose others are zero."""
        if stride == 1 and lane == 0:
            return self.load(memory, offset, count)
        size = stride * self.lanes
        loaded = self.load_as_stored(memory, offset, (count - 1) * stride + 1, size=size)
        taken = range(0, count * stride, stride)
        # The last element is beyond those that are read, thus zero.
        others = self.lanes - lane - count
        return self.real(memory, vector.shuffle(loaded, loaded, [*[size - 1] * lane, *taken, *[size - 1] * others]))

    def load_floats(self, memory: ir.Value, offset: Index) -> ir.Value:
        """Load a vector of f32 from a memory of another element type, whose elements ``offset`` counts."""
        return self.load_words(memory, offset, self.vector_type(ir.F32Type.get()))

    def store_floats(self, stored: ir.Value, memory: ir.Value, offset: Index) -> None:
        """Store a vector of f32 to a memory of another element type."""
        self.store_words(stored, memory, offset)

    def load_words(self, memory: ir.Value, offset: Index, kind: ir.VectorType) -> ir.Value:
        """Load a vector of type ``kind`` from a memory of another element type, whose elements ``offset`` counts."""
        return vector.bitcast(kind, vector.load(_as_stored(kind, memory), memory, [self.value(offset)]))

    def store_words(self, stored: ir.Value, memory: ir.Value, offset: Index) -> None:
        """Store a vector or a scalar to a memory of another element type, whose elements ``offset`` counts."""
        if not isinstance(stored.type, ir.VectorType):
            stored = vector.broadcast(ir.VectorType.get([1], stored.type), stored)
        kind = _as_stored(ir.VectorType(stored.type), memory)
        vector.store(vector.bitcast(kind, stored), memory, [self.value(offset)])

    def _register_of(self, memory: ir.Value) -> ir.VectorType:
        """The vector type of a register full of a memory's elements."""
        element = ir.MemRefType(memory.type).element_type
        return ir.VectorType.get([self.lanes * _FLOAT_BYTES * 8 // element.width], element)

    def copy(self, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int) -> None:
        """Copy ``count`` elements between memories of one type, each given with an offset."""
        element = ir.MemRefType(source[0].type).element_type
        wide = self._register_of(source[0])
        size = wide.shape[0]

        def every(offset: Index) -> None:
            value = vector.load(wide, source[0], [self.value(self.add(source[1], offset))])
            vector.store(value, target[0], [self.value(self.add(target[1], offset))])

        whole = count - count % size
        self.repeat(0, whole, size, every)
        if count > whole:
            mask = vector.create_mask(ir.VectorType.get([size], _bit()), [self.value(count - whole)])
            zero = arith.constant(wide, ir.DenseElementsAttr.get_splat(wide, _zero(element)))
            begin, into = (self.value(self.add(address, whole)) for address in (source[1], target[1]))
            vector.maskedstore(target[0], [into], mask, vector.maskedload(wide, source[0], [begin], mask, zero))

    def fill(self, value: ir.Value, memory: ir.Value, start: Index, count: int) -> None:
        """Store a scalar ``count`` times."""
        wide = ir.VectorType.get([self.lanes * _FLOAT_BYTES * 8 // value.type.width], value.type)
        size, many = wide.shape[0], vector.broadcast(wide, value)
        whole = count - count % size
        self.repeat(0, whole, size, lambda offset: vector.store(many, memory, [self.value(self.add(start, offset))]))
        if count > whole:
            mask = vector.create_mask(ir.VectorType.get([size], _bit()), [self.value(count - whole)])
            vector.maskedstore(memory, [self.value(self.add(start, whole))], mask, many)

    def zero_of(self, memory: ir.Value) -> ir.Value:
        """The scalar that stands for zero in ``memory``."""
        if memory in self._scales:
            return self._scales[memory].number
        element = ir.MemRefType(memory.type).element_type
        return arith.constant(element, _zero(element))

    def real(self, memory: ir.Value, value: ir.Value) -> ir.Value:
        """Convert a loaded vector to f32, in which all arithmetic is done."""
        kind = self.vector_type(ir.F32Type.get())
        if memory in self._scales:
            return self.kept_rounded(arith.mulf(self.centred(memory, value), self._scales[memory].step))
        if isinstance(ir.VectorType(value.type).element_type, _NARROW):
            return arith.extf(kind, value)
        return value

    def kept_rounded(self, product: ir.Value) -> ir.Value:
        """Keep LLVM from fusing a product of f32 with a sum: averages of integers times a scale lie on ties, where the
        last bit decides."""
        fenced: ir.Value = llvm.call_intrinsic(product.type, "llvm.arithmetic.fence", [product], [], [])
        return fenced

    def centred(self, memory: ir.Value, value: ir.Value) -> ir.Value:
        """Integers of a quantised memory minus its zero point, in f32."""
        words = arith.extsi(self.vector_type(ir.IntegerType.get_signless(32)), value)
        return arith.subf(arith.sitofp(self.vector_type(ir.F32Type.get()), words), self._scales[memory].zero)

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Write the first ``count`` elements of a vector from ``offset`` on, rounded to the memory's element type."""
        element = ir.MemRefType(memory.type).element_type
        if ir.VectorType(stored.type).element_type != element:
            stored = self._numbers(stored, self._scales[memory]) if memory in self._scales else stored
            stored = self.rounded(stored, element)
        if count == self.lanes:
            vector.store(stored, memory, [self.value(offset)])
        else:
            vector.maskedstore(memory, [self.value(offset)], self._mask(count), stored)

    def store_all(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Write the first ``count`` elements of a vector of any length."""
        kind = ir.VectorType(stored.type)
        if count == kind.shape[0]:
            vector.store(stored, memory, [self.value(offset)])
            return
        mask = vector.create_mask(ir.VectorType.get(kind.shape, ir.IntegerType.get_signless(1)), [self.value(count)])
        vector.maskedstore(memory, [self.value(offset)], mask, stored)

    def rounded(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Round a vector of f32 to a narrower type. For bf16 LLVM emits seven instructions where some CPUs have one."""
        kind = self.vector_type(element)
        if value.type == kind:
            return value
        if isinstance(element, ir.BF16Type) and self.lanes == _LANES_OF_512 and _ROUNDS_TO_BF16 in self._features:
            rounded: ir.Value = llvm.call_intrinsic(kind, "llvm.x86.avx512bf16.cvtneps2bf16.512", [value], [], [])
            return rounded
        return arith.truncf(kind, value)

    def integers_of(self, value: ir.Value, scale: Scale) -> ir.Value | None:
        """Integers, as floats, that a vector is known to be times a scale; None if none are known."""
        multiple = self.known.multiples.get(value)
        is_known = multiple is not None and self.known.constants[multiple.factor] == scale.known
        return multiple.number if multiple is not None and is_known else None

    def _numbers(self, value: ir.Value, scale: Scale) -> ir.Value:
        """Quantise a vector of f32, rounding to nearest: added to a large number, the integer is in its last bits.

        If the vector is known to be integers times the same scale, these integers are used.
        """
        real, byte = ir.F32Type.get(), self.vector_type(ir.IntegerType.get_signless(8))
        number = self.integers_of(value, scale)
        if number is not None:
            word = ir.IntegerType.get_signless(32)
            words = arith.fptosi(self.vector_type(word), number)
            words = arith.addi(words, vector.broadcast(self.vector_type(word), arith.extsi(word, scale.number)))
            # A model that clips does not need it, and CPUs saturate as they narrow.
            low, high = (self.splat(ir.IntegerAttr.get(word, int(limit))) for limit in _LIMITS)
            return arith.trunci(byte, arith.minsi(arith.maxsi(words, low), high))
        low, high, large = (self.splat(ir.FloatAttr.get(real, limit)) for limit in (*_LIMITS, _LARGE))
        scaled = vector.fma(value, scale.inverse, scale.zero)
        scaled = arith.minimumf(arith.maximumf(scaled, low), high)
        bits = arith.bitcast(self.vector_type(ir.IntegerType.get_signless(32)), arith.addf(scaled, large))
        return arith.trunci(byte, bits)

    def _mask(self, count: Index, present: Condition = True, size: int | None = None) -> ir.Value:
        size = size or self.lanes
        kind = ir.VectorType.get([size], ir.IntegerType.get_signless(1))
        if isinstance(present, bool):
            return vector.create_mask(kind, [self.value(count if present else 0)])
        every = vector.broadcast(kind, present)
        if count == size:
            return every
        return arith.andi(every, vector.create_mask(kind, [self.value(count)]))

    def scratch(self, elements: int, element: ir.Type) -> ir.Value:
        """Memory private to the workgroup, on the stack of its thread."""
        with ir.InsertionPoint.at_block_begin(self._entry):
            kind = ir.MemRefType.get([elements], element)
            return memref.alloca(kind, [], [], alignment=_ALIGNMENT)

    def part_of(self, memory: ir.Value, first: int, elements: int) -> ir.Value:
        """Some adjacent elements of a memory, counted from the first of them on."""
        layout = ir.StridedLayoutAttr.get(first, [1])
        kind = ir.MemRefType.get([elements], ir.MemRefType(memory.type).element_type, layout)
        part: ir.Value = memref.SubViewOp(kind, memory, [], [], [], [first], [elements], [1]).result
        return part

    def keep(self, memory: ir.Value, slot: Index, index: Index) -> None:
        """Store an index in a memory of 64-bit integers, as ``scratch`` allocates it."""
        number = arith.index_cast(ir.IntegerType.get_signless(64), self.value(index))
        memref.store(number, memory, [self.value(slot)])

    def kept(self, memory: ir.Value, slot: Index) -> Index:
        """Load an index that ``keep`` stored."""
        index: ir.Value = arith.index_cast(ir.IndexType.get(), memref.load(memory, [self.value(slot)]))
        return index

    def barrier(self) -> None:
        """Let what the workgroup stored so far be read by all of it: nothing, as one thread runs a workgroup."""

    def prefetch(self, memory: ir.Value, offset: Index, *, is_written: bool = False) -> None:
        """Prefetch ``offset``, which may lie beyond the end, into the second-level cache, for reading or writing."""
        memref.prefetch(memory, [self.value(offset)], is_written, _SECOND_LEVEL, True)

    def prefetch_stream(self, memory: ir.Value, offset: Index) -> None:
        """Prefetch ``offset``, which may lie beyond the end, into the first-level cache: it is read soon, and once."""
        memref.prefetch(memory, [self.value(offset)], False, _FIRST_LEVEL, True)

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        """A vector that repeats one element of memory."""
        scalar = memref.load(memory, [self.value(offset)])
        return self.real(memory, vector.broadcast(self.vector_type(scalar.type), scalar))


def _as_stored(kind: ir.VectorType, memory: ir.Value) -> ir.VectorType:
    """The vector type of a memory's elements that has as many bits as ``kind``."""
    element = ir.MemRefType(memory.type).element_type
    return ir.VectorType.get([kind.shape[0] * kind.element_type.width // element.width], element)


def _bit() -> ir.Type:
    return ir.IntegerType.get_signless(1)


def _zero(element: ir.Type) -> ir.Attribute:
    return ir.IntegerAttr.get(element, 0) if isinstance(element, ir.IntegerType) else ir.FloatAttr.get(element, 0.0)

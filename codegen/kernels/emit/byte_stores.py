"""Store vectors as bytes on CPUs with AVX2 and without AVX-512, up to four of them together.

AVX-512 narrows a vector by one instruction. Before it, VPACKSSDW and VPACKSSWB narrow two vectors to one, saturate, and
leave halves of registers apart, which VPERMD puts in order; so vectors of a tile share them. VCVTPS2DQ rounds ties to
even, as ``rounded`` does, and makes the smallest integer of a number that is too small for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from sartor.codegen.kernels.emit.assembler import Assembler, Scale
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector

_LANES = 8
_TOGETHER = 4
_WORD, _HALF, _BYTE = 32, 16, 8
_HIGHEST = 127.0
_STEPS = 255
# The four bytes of each vector's halves, as packing leaves them.
_IN_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def packs_bytes(lanes: int, features: frozenset[str]) -> bool:
    """Whether a CPU with these features narrows vectors of so many elements by VPACKSSDW and VPACKSSWB."""
    return lanes == _LANES and "avx2" in features and "avx512f" not in features


class Part(NamedTuple):
    """A vector to be stored: its first elements, and where they go, a known distance after a place."""

    value: ir.Value
    place: Index
    distance: int
    elements: int


class ByteAssembler(Assembler):
    """Emits a kernel for a CPU that narrows vectors by VPACKSSDW and VPACKSSWB."""

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Like that of ``Assembler``."""
        if memory in self._scales and isinstance(ir.VectorType(stored.type).element_type, ir.F32Type):
            self.store_bytes([Part(stored, offset, 0, count)], memory)
        else:
            super().store(stored, memory, offset, count)

    def is_quantised(self, memory: ir.Value) -> bool:
        """Whether what is stored to a memory becomes bytes."""
        return memory in self._scales

    def store_bytes(self, parts: Sequence[Part], memory: ir.Value) -> None:
        """Quantise and store at most four vectors of f32."""
        scale = self._scales[memory]
        for _, group in groupby(parts, lambda part: self.integers_of(part.value, scale) is None):
            alike = list(group)
            numbers = self._narrowed([part.value for part in alike], scale)
            for first, size in _pieces(alike):
                self._store_piece(numbers, first, alike[first : first + size], memory)

    def _store_piece(self, numbers: ir.Value, first: int, parts: Sequence[Part], memory: ir.Value) -> None:
        """Store adjacent vectors, of which only a single one may have fewer elements than lanes."""
        begin, size = first * _LANES, len(parts) * _LANES
        piece = vector.shuffle(numbers, numbers, list(range(begin, begin + size)))
        count = parts[0].elements if len(parts) == 1 else size
        self.store_all(piece, memory, self.add(parts[0].place, parts[0].distance), count)

    def _narrowed(self, values: Sequence[ir.Value], scale: Scale) -> ir.Value:
        """The bytes of at most four vectors, one after the other, and arbitrary ones behind them."""
        words = [self._rounded_words(value, scale) for value in values]
        if len(words) % 2:
            words.append(words[-1])
        halves = [self._packed_halves(*pair) for pair in zip(words[::2], words[1::2], strict=True)]
        if self.integers_of(values[0], scale) is not None:
            kind = ir.VectorType(halves[0].type)
            zero = vector.broadcast(kind, arith.extsi(kind.element_type, scale.number))
            halves = [llvm.call_intrinsic(kind, "llvm.sadd.sat", [half, zero], [], []) for half in halves]
        packed = llvm.call_intrinsic(_register(_BYTE), "llvm.x86.avx2.packsswb", [halves[0], halves[-1]], [], [])
        apart = vector.bitcast(_register(_WORD), packed)
        return vector.bitcast(packed.type, vector.shuffle(apart, apart, list(_IN_ORDER)))

    def _packed_halves(self, one: ir.Value, other: ir.Value) -> ir.Value:
        """The integers of two vectors in 16 bits."""
        packed: ir.Value = llvm.call_intrinsic(_register(_HALF), "llvm.x86.avx2.packssdw", [one, other], [], [])
        return packed

    def _rounded_words(self, value: ir.Value, scale: Scale) -> ir.Value:
        """What a vector stands for as integers of 32 bits, of which those that are too large may be any above 127.

        The zero point is not yet added to integers that are known, which saturate with it in 16 bits.
        """
        number = self.integers_of(value, scale)
        if number is None:
            high = self.splat(ir.FloatAttr.get(ir.F32Type.get(), _HIGHEST))
            steps = vector.fma(value, scale.inverse, scale.zero)
            number = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, steps, high), steps, high)
        real = self._not_below_least(self.known.rounded.get(number, number))
        words: ir.Value = llvm.call_intrinsic(_register(_WORD), "llvm.x86.avx.cvt.ps2dq.256", [real], [], [])
        return words

    def _not_below_least(self, real: ir.Value) -> ir.Value:
        """A number without its lower bound where both bounds are the ends of 8 bits: what is below saturates."""
        outer = self.known.clipped.get(real)
        inner = None if outer is None else self.known.clipped.get(outer.number)
        if outer is None or inner is None or outer.is_least == inner.is_least:
            return real
        ends = [round(self.known.constants[loop.bound]) for loop in (outer, inner)]
        if abs(ends[0] - ends[1]) != _STEPS:
            return real
        if outer.is_least:
            return outer.number
        # NaN stays, and becomes the smallest integer.
        is_above = arith.cmpf(arith.CmpFPredicate.OLT, outer.bound, inner.number)
        return arith.select(is_above, outer.bound, inner.number)


def _register(bits: int) -> ir.VectorType:
    """A register full of integers."""
    return ir.VectorType.get([_LANES * _WORD // bits], ir.IntegerType.get_signless(bits))


def _pieces(parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """First vector and number of vectors, a power of two, of each piece of adjacent whole vectors."""
    first = 0
    while first < len(parts):
        size = 1
        while 2 * size <= len(parts) - first and _are_adjacent(parts[first : first + 2 * size]):
            size *= 2
        yield first, size
        first += size


def _are_adjacent(parts: Sequence[Part]) -> bool:
    begin = parts[0]
    return all(
        part.place == begin.place and part.elements == _LANES and part.distance == begin.distance + index * _LANES
        for index, part in enumerate(parts)
    )


class Stores:
    """Stores the vectors of a tile to one memory."""

    def __init__(self, asm: Assembler, memory: ir.Value) -> None:
        self._asm, self._memory = asm, memory

    def add(self, part: Part) -> None:
        """Store a vector, or keep it until others can be stored with it."""
        self._asm.store(part.value, self._memory, self._asm.add(part.place, part.distance), part.elements)

    def finish(self) -> None:
        """Store what was kept."""


class _ByteStores(Stores):
    def __init__(self, asm: ByteAssembler, memory: ir.Value) -> None:
        super().__init__(asm, memory)
        self._bytes = asm
        self._kept: list[Part] = []

    def add(self, part: Part) -> None:
        self._kept.append(part)
        if len(self._kept) == _TOGETHER:
            self.finish()

    def finish(self) -> None:
        if self._kept:
            self._bytes.store_bytes(self._kept, self._memory)
            self._kept = []


def stores_to(asm: Assembler, memory: ir.Value) -> Stores:
    """Stores the vectors of a tile to a memory, several at once if that takes fewer instructions."""
    if isinstance(asm, ByteAssembler) and asm.is_quantised(memory):
        return _ByteStores(asm, memory)
    return Stores(asm, memory)

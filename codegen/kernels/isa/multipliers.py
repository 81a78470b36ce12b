"""How the innermost loop multiplies: one number at a time in f32, or groups of neighbouring numbers of a narrower type.

Instructions for narrower types multiply the numbers of two 32-bit words and add all products to one 32-bit sum
(Intel, Architecture Instruction Set Extensions, VDPBF16PS and VPDPBUSD). So a step takes a group of input channels
instead of one; their numbers are adjacent in the image and in the filters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.packing import Scaled, Storage
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.machine import Machine

MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""The most products of an unsigned number and a weight, both of 8 bits, whose sum cannot exceed 32 bits."""

_WORD_BITS = 32
_WORD_BYTES = 4
_BYTES_OF_512 = 64
TOP_BITS = -0x7F7F7F80
"""Flips the top bit of each byte of a word, which adds a bias of 128 to signed numbers."""


def check_sums(products: int, *, is_quantised: bool = True) -> None:
    """Make sure that sums of so many products of 8-bit integers fit 32 bits.

    Raises:
        RejectionError: if they may not.
    """
    if is_quantised and products > MOST_PRODUCTS:
        raise RejectionError(f"sums of {products} products may exceed 32 bits")


class Multiplier(Protocol):
    """How a step of the innermost loop multiplies."""

    @property
    def group(self) -> int:
        """Adjacent input channels that a step multiplies."""

    @property
    def dtype(self) -> str:
        """Element type of the numbers that are multiplied."""

    @property
    def is_quantised(self) -> bool:
        """Whether these are quantised integers."""

    @property
    def bytes(self) -> int:
        """Bytes of a filter's element."""

    @property
    def pixels(self) -> int:
        """Neighbouring pixels of a tile that are multiplied at once."""

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The accumulators of ``pixels`` pixels, from a vector of sums for each pixel."""

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The inverse of ``open``: a vector of sums for each pixel."""

    def broadcast(self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None]) -> ir.Value:
        """The operand that filters are multiplied by: the groups of an image at ``offsets``, one for each of ``pixels``
        pixels; zeros for None."""

    def factors(
        self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None], steps: int
    ) -> Sequence[ir.Value]:
        """The operands of ``broadcast`` for adjacent steps: one, or as many as a vector has elements."""

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        """A vector of groups of filters from ``offset`` on, of which ``count`` or more exist."""

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Add the products of ``lhs``, from ``broadcast``, and ``rhs``, from ``load``, to the accumulators of
        pixels."""

    def together(self, lanes: int, steps: int) -> int:
        """Adjacent steps whose numbers of the image are loaded as a vector, if ``steps`` are written out."""

    def without(self, skipped: int) -> Multiplier:
        """The multiplier for a last group, whose first ``skipped`` numbers were multiplied already."""


class _ByPixel(ABC):
    """A multiplier that takes pixels one by one; its accumulators are the vectors of sums."""

    @property
    def pixels(self) -> int:
        return 1

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return sums

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return accumulators

    def broadcast(self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None]) -> ir.Value:
        return self.repeated(asm, memory, only_offset(offsets))

    def factors(
        self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None], steps: int
    ) -> Sequence[ir.Value]:
        if steps == 1:
            return [self.broadcast(asm, memory, offsets)]
        adjacent = self.adjacent(asm, memory, only_offset(offsets))
        return [self.element_of(asm, memory, adjacent, step) for step in range(steps)]

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        (total,) = accumulators
        return (self.multiplied(asm, lhs, rhs, total),)

    @abstractmethod
    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        """A vector that repeats the group at ``offset`` of an image."""

    @abstractmethod
    def adjacent(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        """A vector of words, each a group, from ``offset`` of an image on."""

    @abstractmethod
    def element_of(self, asm: Assembler, memory: ir.Value, adjacent: ir.Value, index: int) -> ir.Value:
        """A vector that repeats one group of those that ``adjacent`` loaded."""

    @abstractmethod
    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        """A vector of sums with the products of two vectors of groups added."""


def only_offset(offsets: Sequence[Index | None]) -> Index:
    """The offset of the only pixel.

    Raises:
        RejectionError: if the pixel is left out.
    """
    (offset,) = offsets
    if offset is None:
        raise RejectionError("a pixel that is left out is not multiplied")
    return offset


@dataclass(frozen=True)
class Fma(_ByPixel):
    """Fused multiply-add of single numbers in f32, whatever type they are stored in: loads widen them.

    Attributes:
        bytes: of a filter's number in memory.
    """

    group: int = 1
    bytes: int = 4
    dtype: str = "f32"
    is_quantised: bool = False

    def together(self, lanes: int, steps: int) -> int:
        return lanes if steps % lanes == 0 else 1

    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        return asm.broadcast(memory, offset)

    def adjacent(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        return asm.load(memory, offset, asm.lanes)

    def element_of(self, asm: Assembler, memory: ir.Value, adjacent: ir.Value, index: int) -> ir.Value:
        return asm.repeated(adjacent, index)

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        return asm.load(memory, offset, count)

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        return asm.multiply_add(lhs, rhs, total)

    def without(self, skipped: int) -> Fma:
        return self


@dataclass(frozen=True)
class WholeFma(Fma):
    """Multiply-adds by filters that are integers of 8 bits, which loads turn into f32."""

    bytes: int = 1

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        words = asm.vector_type(ir.IntegerType.get_signless(_WORD_BITS))
        stored = asm.load_as_stored(memory, offset, count)
        return arith.sitofp(asm.vector_type(ir.F32Type.get()), arith.extsi(words, stored))


# A tuple, not a set: the printed form is part of a kernel's identity, and sets are printed in no fixed order.
Extensions = tuple[str, ...]


@dataclass(frozen=True)
class DotElement(MultiplyInstruction):
    """A dot-product instruction on vectors; ``{bits}`` in its name stands for the width of a vector.

    Attributes:
        extensions: for vectors of at least so many bytes, longest first, sets of CPU features by LLVM's names; a CPU
            needs all features of one set.
        bias: what is added to the image's numbers: 128 if the instruction takes them without a sign, else 0.
        operands: vector registers that it needs besides one for each vector of sums and of filters.
        most_bits: of codes without a sign that are multiplied by signed numbers of 8 bits without a bias.
        needs_small_pairs: whether products are exact only by weights whose pairs are small (``QuantisePairs``).
    """

    extensions: tuple[tuple[int, tuple[Extensions, ...]], ...]
    bias: int = 0
    operands: int = 0
    most_bits: int = 8
    needs_small_pairs: bool = False

    @property
    def rate(self) -> int:
        """Products relative to an instruction in f32: each lane gets a group of them."""
        return self.group

    @property
    def prepares(self) -> bool:
        """Whether the image's numbers are changed before they are multiplied."""
        return self.bias != 0

    @property
    def requirement(self) -> str:
        """The CPU features that provide the instruction, for vectors of some length, by LLVM's names."""
        needed = {feature for _, sets in self.extensions for feature in sets}
        return _alternatives([feature for feature in needed if not any(set(other) < set(feature) for other in needed)])

    def exists_on(self, machine: Machine) -> bool:
        """Whether a CPU has the instruction; operating systems do not withhold it."""
        return self.refusal(machine) is None

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU cannot use the instruction; None if it can."""
        sets = next((sets for least, sets in self.extensions if machine.vector_bytes >= least), ())
        if not sets:
            return Rejected(f"the CPU's vectors of {machine.vector_bytes} bytes are too short for the instruction")
        if any(machine.features.issuperset(required) for required in sets):
            return None
        return Rejected(f"the CPU has no {_alternatives(sets)}")

    @property
    def together(self) -> int:
        """Groups of which ``added`` is best given so many."""
        return 1

    def added(self, asm: Assembler, groups: Iterable[tuple[ir.Value, ir.Value]], total: ir.Value) -> ir.Value:
        """A vector of sums with the products of pairs of vectors of groups added, in the order of the operands."""
        name = self.product.format(bits=asm.lanes * _WORD_BITS)
        for lhs, rhs in groups:
            total = llvm.call_intrinsic(total.type, name, [total, lhs, rhs], [], [])
        return total

    def core(self, core: Core) -> Core:
        """The core as the analytic models see it, with the rate and latency of this instruction."""
        return core

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier by this instruction; an image of numbers without a sign needs no bias."""
        return DotProduct(self, has_sign=has_sign)


def _alternatives(sets: Iterable[Extensions]) -> str:
    return " or ".join(sorted(" and ".join(sorted(required)) for required in sets))


BFLOAT_DOTS = DotElement(
    "bf16",
    2,
    "f32",
    "llvm.x86.avx512bf16.dpbf16ps.{bits}",
    ((_BYTES_OF_512, (("avx512bf16",),)), (0, (("avx512bf16", "avx512vl"),))),
)
INTEGER_DOTS = DotElement(
    "i8",
    4,
    "i32",
    "llvm.x86.avx512.vpdpbusd.{bits}",
    ((_BYTES_OF_512, (("avx512vnni",),)), (0, (("avxvnni",), ("avx512vnni", "avx512vl")))),
    bias=128,
)


def load_group(asm: Assembler, memory: ir.Value, offset: Index, group: int, skipped: int) -> ir.Value:
    """Load a group of an image's numbers as a vector of one word. The first ``skipped`` numbers are shifted out, and
    zeros follow the others."""
    element = ir.MemRefType(memory.type).element_type
    word = ir.IntegerType.get_signless(group * element.width)
    stored = vector.load(ir.VectorType.get([group], element), memory, [asm.value(offset)])
    numbers = vector.bitcast(ir.VectorType.get([1], word), stored)
    if not skipped:
        return numbers
    bits = ir.DenseElementsAttr.get_splat(numbers.type, ir.IntegerAttr.get(word, skipped * element.width))
    return arith.shrui(numbers, arith.constant(numbers.type, bits))


@dataclass(frozen=True)
class ByInstruction:
    """Base of multipliers by an instruction.

    Attributes:
        element: the instruction.
        skipped: numbers that are left out at the beginning of an image's group; the filters begin with the next one.
    """

    element: DotElement
    skipped: int = 0

    @property
    def group(self) -> int:
        return self.element.group

    @property
    def dtype(self) -> str:
        return self.element.dtype

    @property
    def is_quantised(self) -> bool:
        return self.element.is_quantised

    def together(self, lanes: int, steps: int) -> int:
        return lanes if steps % lanes == 0 else 1

    def without(self, skipped: int) -> Self:
        """The multiplier for a last group, whose first ``skipped`` numbers were multiplied already."""
        return replace(self, skipped=skipped)


@dataclass(frozen=True)
class DotProduct(ByInstruction, _ByPixel):
    """Dot products of groups of numbers, in the type that they are stored in.

    Attributes:
        has_sign: whether integers of the image are signed.
    """

    has_sign: bool = True

    @property
    def bytes(self) -> int:
        return _WORD_BYTES // self.element.group

    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        word = ir.IntegerType.get_signless(_WORD_BITS)
        repeated = vector.broadcast(asm.vector_type(word), load_group(asm, memory, offset, self.group, self.skipped))
        return vector.bitcast(self._groups(asm, memory), self._biased(asm, repeated))

    def adjacent(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        words = asm.load_words(memory, offset, asm.vector_type(ir.IntegerType.get_signless(_WORD_BITS)))
        return self._biased(asm, words)

    def element_of(self, asm: Assembler, memory: ir.Value, adjacent: ir.Value, index: int) -> ir.Value:
        repeated = vector.shuffle(adjacent, adjacent, [index] * asm.lanes)
        return vector.bitcast(self._groups(asm, memory), repeated)

    def _biased(self, asm: Assembler, words: ir.Value) -> ir.Value:
        """Words of groups with the instruction's bias added to each number."""
        if not (self.element.bias and self.has_sign):
            return words
        return arith.xori(words, asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(_WORD_BITS), TOP_BITS)))

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        return vector.load(self._groups(asm, memory), memory, [asm.value(offset)])

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        name = self.element.product.format(bits=asm.lanes * _WORD_BITS)
        return llvm.call_intrinsic(total.type, name, [total, lhs, rhs], [], [])

    def _groups(self, asm: Assembler, memory: ir.Value) -> ir.VectorType:
        return ir.VectorType.get([asm.lanes * self.group], ir.MemRefType(memory.type).element_type)


FMA = Fma()


def widening(weights: Storage | None) -> Fma:
    """Multiply-adds by filters that are stored in a narrower type; None for f32."""
    if isinstance(weights, Scaled):
        return WholeFma()
    return FMA if weights is None else Fma(bytes=TensorType((), weights.dtype).bytes)

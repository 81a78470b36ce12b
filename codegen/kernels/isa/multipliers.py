"""How the innermost loop multiplies: one number at a time in f32, or groups of neighbouring numbers of a narrower type.

Instructions for narrower types multiply the numbers of two 32-bit words and add all products to one 32-bit sum
(Intel, Architecture Instruction Set Extensions, VDPBF16PS and VPDPBUSD). So a group of input channels takes the place
of one, in the image and, side by side, in the filters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.machine import Machine

MOST_PRODUCTS = (1 << 31) // (255 * 127)
"""Of a number without a sign and a weight, as many as a sum of 32 bits holds for certain."""

_WORD_BITS = 32
_WORD_BYTES = 4
_BYTES_OF_512 = 64
# A bias of 128: that much more than a number is that number with its top bit turned.
_TOP_BITS = -0x7F7F7F80


class Multiplier(Protocol):
    """What a step of the innermost loop multiplies."""

    @property
    def group(self) -> int:
        """Neighbouring input channels of a step."""

    @property
    def bytes(self) -> int:
        """Size of a filter's element."""

    @property
    def pixels(self) -> int:
        """Neighbouring pixels of a tile that are multiplied at once."""

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The accumulators of ``pixels`` pixels, from one vector of sums for each pixel."""

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The vectors of sums from accumulators."""

    def broadcast(self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None]) -> ir.Value:
        """What vectors of filters are multiplied by: the groups at ``offsets`` of an image, one for each such pixel,
        zeros where there is none."""

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        """The groups of a vector of filters from ``offset`` on, of which there are at least ``count``."""

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Accumulators of such pixels with the products of their groups and of a vector of filters added."""

    def without(self, skipped: int) -> Multiplier:
        """The same for a last group, whose first numbers were multiplied already."""


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
        (offset,) = offsets
        if offset is None:
            raise ValueError("a pixel that is left out is not multiplied")
        return self.repeated(asm, memory, offset)

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        (total,) = accumulators
        return (self.multiplied(asm, lhs, rhs, total),)

    @abstractmethod
    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        """A vector that repeats the group at ``offset`` of an image."""

    @abstractmethod
    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        """A vector of sums with the products of two vectors of groups added."""


@dataclass(frozen=True)
class Fma(_ByPixel):
    """Numbers one by one, in f32 whatever they are stored as."""

    group: int = 1
    bytes: int = 4

    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        return asm.broadcast(memory, offset)

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        return asm.load(memory, offset, count)

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        return vector.fma(lhs, rhs, total)

    def without(self, skipped: int) -> Fma:
        return self


# Printed elements are part of what kernels are known by, and sets have no order.
Extensions = tuple[str, ...]


@dataclass(frozen=True)
class DotElement(MultiplyInstruction):
    """What an instruction on vectors multiplies; ``{bits}`` in its name stands for the width of a vector.

    Attributes:
        extensions: of the CPU that have it for vectors of so many bytes or more, the longest first, in LLVM's words:
            all of one of the sets have to be there.
        bias: how much more the image's factors are than the numbers that they stand for: 128 where they have no sign.
        operands: vector registers that the instruction needs beside one for each vector of sums and of filters.
    """

    extensions: tuple[tuple[int, tuple[Extensions, ...]], ...]
    bias: int = 0
    operands: int = 0

    @property
    def rate(self) -> int:
        """Each lane gets a group of products."""
        return self.group

    @property
    def prepares(self) -> bool:
        """Whether what a pixel has is changed before it is multiplied."""
        return self.bias != 0

    @property
    def requirement(self) -> str:
        """The extensions of a CPU that have the instruction for vectors of some length, in LLVM's words."""
        found = {each for _, sets in self.extensions for each in sets}
        return _alternatives([each for each in found if not any(set(other) < set(each) for other in found)])

    def exists_on(self, machine: Machine) -> bool:
        """Whether a CPU has the instruction; programs may use it then."""
        return self.refusal(machine) is None

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why a CPU cannot, None if it can."""
        sets = next((sets for least, sets in self.extensions if machine.vector_bytes >= least), ())
        if not sets:
            return Rejected(f"the CPU's vectors of {machine.vector_bytes} bytes are too short for the instruction")
        if any(machine.features.issuperset(each) for each in sets):
            return None
        return Rejected(f"the CPU has no {_alternatives(sets)}")

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """How code multiplies by the instruction; an image of numbers without a sign needs no bias."""
        return DotProduct(self, has_sign=has_sign)


def _alternatives(sets: Iterable[Extensions]) -> str:
    return " or ".join(sorted(" and ".join(sorted(each)) for each in sets))


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
    """The group of numbers at an offset of an image as a vector of one word, without the numbers ``skipped`` at its
    beginning: the others come first, zeros after them."""
    element = ir.MemRefType(memory.type).element_type
    word = ir.IntegerType.get_signless(group * element.width)
    stored = vector.load(ir.VectorType.get([group], element), memory, [asm.value(offset)])
    numbers = vector.bitcast(ir.VectorType.get([1], word), stored)
    if not skipped:
        return numbers
    bits = ir.DenseElementsAttr.get_splat(numbers.type, ir.IntegerAttr.get(word, skipped * element.width))
    return arith.shrui(numbers, arith.constant(numbers.type, bits))


@dataclass(frozen=True)
class DotProduct(_ByPixel):
    """Groups of numbers as they are stored.

    Attributes:
        element: what is multiplied.
        skipped: numbers at the beginning of a group of the image that are left out, and do not lie before the others in
            the filters.
        has_sign: whether integers of the image come with their sign.
    """

    element: DotElement
    skipped: int = 0
    has_sign: bool = True

    @property
    def group(self) -> int:
        return self.element.group

    @property
    def bytes(self) -> int:
        return _WORD_BYTES // self.element.group

    def repeated(self, asm: Assembler, memory: ir.Value, offset: Index) -> ir.Value:
        word = ir.IntegerType.get_signless(_WORD_BITS)
        repeated = vector.broadcast(asm.vector_type(word), load_group(asm, memory, offset, self.group, self.skipped))
        if self.element.bias and self.has_sign:
            repeated = arith.xori(repeated, asm.splat(ir.IntegerAttr.get(word, _TOP_BITS)))
        return vector.bitcast(self._groups(asm, memory), repeated)

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        return vector.load(self._groups(asm, memory), memory, [asm.value(offset)])

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        name = self.element.product.format(bits=asm.lanes * _WORD_BITS)
        return llvm.call_intrinsic(total.type, name, [total, lhs, rhs], [], [])

    def without(self, skipped: int) -> DotProduct:
        return replace(self, skipped=skipped)

    def _groups(self, asm: Assembler, memory: ir.Value) -> ir.VectorType:
        return ir.VectorType.get([asm.lanes * self.group], ir.MemRefType(memory.type).element_type)


FMA = Fma()

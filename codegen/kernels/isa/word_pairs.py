"""Products of pairs of 16-bit integers, of which every x86 adds both to a 32-bit sum (Intel, Architecture Instruction
Set Extensions, VPMADDWD).

Numbers of 8 bits are widened to 16 before they are multiplied. So no sum saturates, as those of VPMADDUBSW do, and the
image's zero point is subtracted as it is widened, so sums need no correction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement, DotProduct, Multiplier
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.machine import Machine

_GROUP = 2
_WORD_BITS, _HALF_BITS = 32, 16
INTRINSICS = {
    128: "llvm.x86.sse2.pmadd.wd",
    256: "llvm.x86.avx2.pmadd.wd",
    512: "llvm.x86.avx512.pmaddw.d.512",
}
"""LLVM's names of the instruction, by the bits of a vector."""
# Each product takes an addition too, which most CPUs start on the ports of multiplications: two products in about three
# instructions' time. A sum waits for an addition alone. Products, loads and loops start three at once beside additions.
_MULTIPLIES, _LATENCY, _ISSUE = 1.5, 1, 3


@dataclass(frozen=True)
class WordPairElement(DotElement):
    """The instruction on numbers of 8 bits that were widened.

    Attributes:
        is_wide: whether filters are stored in 16 bits; else in 8, and widened where they are read.
    """

    is_wide: bool = False

    @property
    def filter_bytes(self) -> int:
        """Bytes of a filter's number in memory."""
        return 2 if self.is_wide else 1

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU should not use the instruction; None if it should."""
        if INTEGER_DOTS.exists_on(machine):
            return Rejected(f"the CPU has a faster instruction for {self.dtype}")
        return super().refusal(machine)

    def core(self, core: Core) -> Core:
        """The core, with the rate and latency of the instruction and the addition that follows it."""
        share = _MULTIPLIES / Core.multiplies
        return replace(core, multiplies=core.multiplies * share, latency=_LATENCY, issue=min(core.issue, _ISSUE))

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier of an image of signed 16-bit numbers."""
        return WordPairs(self)


@dataclass(frozen=True)
class WordPairs(DotProduct):
    """Multiplies pairs of an image's numbers, which are in 16 bits, by pairs of filters, which lie in bytes.

    Attributes:
        element: the instruction.
    """

    element: WordPairElement

    @property
    def bytes(self) -> int:
        """Bytes of an element of the filters' memory."""
        return 1

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        """The pairs of a vector of channels, in 16 bits."""
        kind = ir.VectorType.get([asm.lanes * _GROUP], ir.IntegerType.get_signless(_HALF_BITS))
        if self.element.is_wide:
            return asm.load_words(memory, offset, kind)
        stored = ir.VectorType.get(kind.shape, ir.MemRefType(memory.type).element_type)
        return arith.extsi(kind, vector.load(stored, memory, [asm.value(offset)]))

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        """Sums with the products of two vectors of pairs added."""
        name = INTRINSICS[asm.lanes * _WORD_BITS]
        return arith.addi(total, llvm.call_intrinsic(total.type, name, [lhs, rhs], [], []))


@dataclass(frozen=True)
class EncodedPairs(WordPairs):
    """Multiplies pairs of 16-bit numbers, both of which lie in memories of that type."""

    @property
    def bytes(self) -> int:
        return 2

    @property
    def dtype(self) -> str:
        return "i16"

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        return vector.load(self._groups(asm, memory), memory, [asm.value(offset)])


_EXTENSIONS = ((64, (("avx512bw",),)), (32, (("avx2",),)), (16, (("sse2",),)))
WORD_PAIRS = WordPairElement("i8", _GROUP, "i32", "vpmaddwd", _EXTENSIONS, operands=1)
"""By filters that are stored in 8 bits."""
WIDE_WORD_PAIRS = replace(WORD_PAIRS, is_wide=True)
"""By filters that are stored in 16 bits."""

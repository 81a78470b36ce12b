"""Products of pairs of bytes, of which every x86 with AVX2 adds both in 16 bits (Intel, Architecture Instruction Set
Extensions, VPMADDUBSW).

That saturates where numbers without a sign use all of their bits. Codes of few bits do not: the sums of some pairs stay
below 2^15, and are added in 32 bits together (VPMADDWD by ones).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.word_pairs import INTRINSICS
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm
from sartor.codegen.mlir.machine import Machine

_WORD_BITS, _HALF_BITS = 32, 16
_PAIRS = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
# Of pairs of codes of 4 bits, or of four of 2 bits: 2 * 2 * 15 * 127 is below 2^15.
_TOGETHER = 4
# For each multiplication, half an addition in 16 bits, half a sum of pairs and half an addition in 32 bits.
_MULTIPLIES = 2.5


@dataclass(frozen=True)
class BytePairElement(DotElement):
    """The instruction on codes of at most 4 bits without a sign, and numbers of 8 bits from -127."""

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU should not use the instruction; None if it should."""
        if INTEGER_DOTS.exists_on(machine):
            return Rejected(f"the CPU has a faster instruction for {self.dtype}")
        return super().refusal(machine)

    @property
    def together(self) -> int:
        return _TOGETHER

    def added(self, asm: Assembler, groups: Iterable[tuple[ir.Value, ir.Value]], total: ir.Value) -> ir.Value:
        bits, half = asm.lanes * _WORD_BITS, ir.IntegerType.get_signless(_HALF_BITS)
        kind = ir.VectorType.get([asm.lanes * 2], half)
        pairs: ir.Value | None = None
        for codes, numbers in groups:
            product = llvm.call_intrinsic(kind, _PAIRS[bits], [codes, numbers], [], [])
            pairs = product if pairs is None else arith.addi(pairs, product)
        ones = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(half, 1)))
        return arith.addi(total, llvm.call_intrinsic(total.type, INTRINSICS[bits], [pairs, ones], [], []))

    def core(self, core: Core) -> Core:
        """The core, with the rate of the instruction and those that follow it."""
        return replace(core, multiplies=core.multiplies * _MULTIPLIES / Core.multiplies, latency=1)


_EXTENSIONS = ((64, (("avx512bw",),)), (32, (("avx2",),)), (16, (("ssse3",),)))
BYTE_PAIRS = BytePairElement("i8", 4, "i32", "vpmaddubsw", _EXTENSIONS, operands=2, most_bits=4)
"""For x86-64 CPUs without VNNI."""

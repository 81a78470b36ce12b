"""Products of 8 bits by VPMADDUBSW, which adds two products in 16 bits and saturates, where no two can be too large.

Numbers of the image have no sign, so two products are at most 255 times what their weights are together: 128 or less is
small enough (``codegen/ir/proven_pairs.py``). VPMADDWD by ones adds each two sums in 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement, DotProduct, Multiplier
from sartor.codegen.kernels.isa.word_pairs import INTRINSICS
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm
from sartor.codegen.mlir.machine import Machine

_GROUP = 4
_WORD_BITS, _HALF_BITS = 32, 16
_BIAS = 128
_PRODUCTS = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
# Four products take two multiplications and an addition. A sum waits for the addition alone.
_MULTIPLIES, _LATENCY = 1, 1


@dataclass(frozen=True)
class SmallPairElement(DotElement):
    """Both instructions and an addition as one that multiplies four numbers of 8 bits."""

    needs_small_pairs: bool = True

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU should not use the instruction; None if it should."""
        if INTEGER_DOTS.exists_on(machine):
            return Rejected(f"the CPU has a faster instruction for {self.dtype}")
        return super().refusal(machine)

    def core(self, core: Core) -> Core:
        """The core, with the rate and latency of the instructions."""
        return replace(core, multiplies=core.multiplies * _MULTIPLIES / Core.multiplies, latency=_LATENCY)

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier of an image of numbers of 8 bits."""
        return SmallPairs(self, has_sign=has_sign)


@dataclass(frozen=True)
class SmallPairs(DotProduct):
    """Multiplies groups of four numbers, pair by pair."""

    def multiplied(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
        bits = asm.lanes * _WORD_BITS
        halves = ir.VectorType.get([bits // _HALF_BITS], ir.IntegerType.get_signless(_HALF_BITS))
        sums = llvm.call_intrinsic(halves, _PRODUCTS[bits], [lhs, rhs], [], [])
        one = ir.IntegerAttr.get(halves.element_type, 1)
        ones = arith.constant(halves, ir.DenseElementsAttr.get_splat(halves, one))
        return arith.addi(total, llvm.call_intrinsic(total.type, INTRINSICS[bits], [sums, ones], [], []))


_EXTENSIONS = ((64, (("avx512bw",),)), (32, (("avx2",),)), (16, (("ssse3",),)))
SMALL_PAIRS = SmallPairElement("i8", _GROUP, "i32", "vpmaddubsw", _EXTENSIONS, bias=_BIAS, operands=1)
"""By filters of which no pair is more than 128 together."""

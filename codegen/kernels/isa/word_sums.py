"""Products of pairs of 16-bit integers that are added to 32-bit sums: VPDPWSSD where a CPU has VNNI, else VPMADDWD and
an addition (Intel, Architecture Instruction Set Extensions).

Twice as many products as multiply-adds in f32 start in a cycle. Rows that are rounded to 16 bits block by block keep
errors that are a hundredth of those of 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotElement
from sartor.codegen.kernels.isa.word_pairs import INTRINSICS, WORD_PAIRS
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm
from sartor.codegen.mlir.machine import Machine

_GROUP, _WORD_BITS = 2, 32


@dataclass(frozen=True)
class PairSums(DotElement):
    """VPMADDWD and an addition."""

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU should not use the instruction; None if it should."""
        if WORD_DOTS.exists_on(machine):
            return Rejected("the CPU has an instruction that adds the products, too")
        return super().refusal(machine)

    def core(self, core: Core) -> Core:
        """The core, at the rate of two instructions; a sum waits for an addition alone."""
        return replace(core, multiplies=core.multiplies / 2, latency=1)

    def added(self, asm: Assembler, groups: Iterable[tuple[ir.Value, ir.Value]], total: ir.Value) -> ir.Value:
        name = INTRINSICS[asm.lanes * _WORD_BITS]
        for lhs, rhs in groups:
            total = arith.addi(total, llvm.call_intrinsic(total.type, name, [lhs, rhs], [], []))
        return total


# VNNI has both instructions, of bytes and of words.
WORD_DOTS = DotElement("i16", _GROUP, "i32", "llvm.x86.avx512.vpdpwssd.{bits}", INTEGER_DOTS.extensions)
"""For CPUs with VNNI."""
PAIR_SUMS = PairSums("i16", _GROUP, "i32", "vpmaddwd", WORD_PAIRS.extensions)
"""For other x86-64 CPUs."""

"""Products of two adjacent input channels in f16 on a GPU, by one instruction on a vector of two.

GPUs multiply two numbers of f16 in the time of one of f32 (AMD's packed instructions, Arm's and NVIDIA's on registers
of two halves), and a load of 32 bits has both. Sums of a few products stay in f16, so that hardly any instruction
converts; then they are added to sums in f32, or their error would grow with the depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.gpu.invocations import InvocationAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import Multiplier, only_offset
from sartor.codegen.kernels.isa.pairs import PairElement
from sartor.codegen.mlir.gpu_machine import HALF_ARITHMETIC
from sartor.codegen.mlir.iree_compiler import arith, ir, vector
from sartor.codegen.mlir.machine import Machine

_GROUP = 2


@dataclass(frozen=True)
class HalfPairFma:
    """A multiply-add of two numbers in f16 for each step, which takes two input channels; all offsets have to be even.

    Attributes:
        chain: the most steps whose sum stays in f16. Each of both sums is of so many products.
    """

    group: int = _GROUP
    bytes: int = 2
    dtype: str = "f16"
    is_quantised: bool = False
    pixels: int = 1
    chain: int = 16

    def together(self, lanes: int, steps: int) -> int:
        """Steps that a load of each invocation has numbers for."""
        return lanes if steps % lanes == 0 else 1

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The sums themselves."""
        return sums

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The accumulators themselves."""
        return accumulators

    def begin(self, asm: Assembler) -> ir.Value:
        """Two sums in f16 of no products."""
        return cast(InvocationAssembler, asm).no_halves()

    def end(self, asm: Assembler, total: ir.Value, chained: ir.Value) -> ir.Value:
        """A sum in f32 with both sums in f16 added."""
        real = ir.F32Type.get()
        even, odd = (arith.extf(real, vector.extract(chained, [], [index])) for index in range(_GROUP))
        return arith.addf(total, arith.addf(even, odd))

    def factors(
        self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None], steps: int
    ) -> Sequence[ir.Value]:
        """The pairs of a pixel for adjacent steps."""
        offset, invocation = only_offset(offsets), cast(InvocationAssembler, asm)
        if steps == 1:
            return [invocation.halves(invocation.broadcast_word(memory, offset))]
        words = invocation.load_word(memory, offset)
        return [invocation.halves(asm.repeated(words, step)) for step in range(steps)]

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        """The filters of a pair for a vector of channels."""
        invocation = cast(InvocationAssembler, asm)
        return invocation.halves(invocation.load_word(memory, offset))

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Add both products, each to a sum of its own."""
        (total,) = accumulators
        return (asm.multiply_add(lhs, rhs, total),)

    def without(self, skipped: int) -> HalfPairFma:
        """Itself: no numbers are left out."""
        return self


@dataclass(frozen=True)
class HalfPairElement(PairElement):
    """Pairs of f16, on GPUs that compute in it."""

    channels: int = _GROUP

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why a machine cannot multiply in f16; None if it can."""
        return None if HALF_ARITHMETIC in machine.features else Rejected("the device has no arithmetic in f16")

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier by pairs of f16."""
        return cast(Multiplier, HalfPairFma())


HALF_PAIRS = HalfPairElement("f16", _GROUP, "f32", "", ())

"""The peak of exact products of 16-bit pairs, which kernels for 8 bits multiply where a CPU has no VNNI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.word_pairs import INTRINSICS
from sartor.codegen.kernels.vector.peak import MultiplyAdds, Roofline
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.machine import machine_of
from sartor.tuning.cost_tables.roofline import Limit
from sartor.tuning.measuring.benchmark_case import BenchmarkCase

_WORD, _HALF = 32, 16
# Enough for three cycles of latency at two products a cycle; with a sum for each they fit 16 registers.
_CHAINS = 7
_STEPS = 1 << 17
_GROUPS_PER_THREAD = 64


@dataclass(frozen=True)
class PairProducts(MultiplyAdds):
    """Workgroups that multiply pairs in registers only.

    Attributes:
        additions: of each product to a sum, as kernels need them: 1, or 0 for products alone.
    """

    additions: int = 0

    @property
    def operations(self) -> int:
        """Operations of all workgroups; a multiply-add counts as two, and each lane does two."""
        return 2 * super().operations

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        source, result = memories
        words = ir.VectorType.get([self.lanes], ir.IntegerType.get_signless(_WORD))
        halves = ir.VectorType.get([2 * self.lanes], ir.IntegerType.get_signless(_HALF))
        floats = [asm.load(source, index * self.lanes, self.lanes) for index in range(1 + self.chains)]
        factor, *starts = (vector.bitcast(halves, each) for each in floats)
        zero = asm.splat(ir.IntegerAttr.get(words.element_type, 0))

        def every(_: Index, carried: list[ir.Value]) -> list[ir.Value]:
            factors, sums = carried[: self.chains], carried[self.chains :]
            name = INTRINSICS[self.lanes * _WORD]
            products = [llvm.call_intrinsic(words, name, [each, factor], [], []) for each in factors]
            added = [arith.addi(*each) for each in zip(sums, products, strict=True)] if self.additions else sums
            return [*(vector.bitcast(halves, each) for each in products), *added]

        begin = asm.mul(group[0], self.chains * self.lanes)
        totals = asm.loop(0, self.steps, 1, [*starts, *[zero] * self.chains], every)
        for position in range(self.chains):
            product, total = vector.bitcast(words, totals[position]), totals[self.chains + position]
            stored = vector.bitcast(floats[0].type, arith.addi(product, total))
            asm.store(stored, result, asm.add(begin, position * self.lanes), self.lanes)


def peak_products(target: Target, threads: int, *, additions: int) -> Limit:
    """Operations of a CPU by the instruction for pairs, a multiply-add being two.

    Args:
        target: what code is for.
        threads: that multiply at once.
        additions: 1 if each product is added to a sum by another instruction, as in kernels; 0 if not.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    lanes = machine_of(target).lanes
    code = PairProducts(lanes, _CHAINS, _STEPS // _CHAINS, _GROUPS_PER_THREAD * threads, additions)
    roofline = Roofline("added_pair_products" if additions else "pair_products", code)
    task = roofline.task
    variants = (roofline.variant(target),)
    return Limit(BenchmarkCase(task.key, task.inputs, task.weights, task.results, variants), code.operations)

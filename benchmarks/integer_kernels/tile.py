"""The innermost loop of exact products in 8 bits, by pairs of 16-bit numbers and by pairs of bytes.

VPMADDUBSW multiplies twice as many numbers, but adds pairs of products in 16 bits, where a pair fits if its two weights
are at most 128 together, and two pairs if four are. The sums then take a VPMADDWD by ones to become 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.word_pairs import INTRINSICS
from sartor.codegen.kernels.vector.peak import MultiplyAdds, Roofline
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.machine import machine_of
from sartor.tuning.cost_tables.roofline import Limit
from sartor.tuning.measuring.benchmark_case import BenchmarkCase

_WORD, _HALF, _BYTE = 32, 16, 8
_BYTES = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
# Filters and pixels of so many steps stay in the first-level cache, and are read again and again.
_STEPS = 64
_TURNS = 1 << 11
_GROUPS_PER_THREAD = 16


@dataclass(frozen=True)
class TileProducts(MultiplyAdds):
    """Workgroups that multiply tiles of pixels by vectors of filters, both of which they load in each step.

    Attributes:
        vectors: vectors of filters; ``chains`` are so many for each pixel.
        sums: pairs of bytes that are added in 16 bits; 0 for pairs of 16-bit numbers.
    """

    vectors: int = 1
    sums: int = 0

    @property
    def columns(self) -> int:
        """Pixels of a tile."""
        return self.chains // self.vectors

    @property
    def source(self) -> TensorType:
        """Filters and pixels of all steps that are not repetitions."""
        return TensorType((_STEPS * (self.vectors * self.lanes + self.columns),), "f32")

    @property
    def operations(self) -> int:
        """Operations of all workgroups; a multiply-add counts as two, and each lane does two or four."""
        return (4 if self.sums else 2) * super().operations

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        source, result = memories
        words = asm.vector_type(ir.IntegerType.get_signless(_WORD))
        zero = asm.splat(ir.IntegerAttr.get(words.element_type, 0))
        multiplied = self._bytes if self.sums else self._pairs
        together = max(1, self.sums)

        def step(position: Index, totals: list[ir.Value]) -> list[ir.Value]:
            start = asm.mul(position, self.vectors * self.lanes)
            size = self.vectors * self.lanes
            filters = [
                [
                    asm.load(source, asm.add(start, part * size, vectors * self.lanes), self.lanes)
                    for part in range(together)
                ]
                for vectors in range(self.vectors)
            ]
            found = []
            for column in range(self.columns):
                begin = asm.add(position, _STEPS * size + column * _STEPS)
                pixels = [asm.broadcast(source, asm.add(begin, part)) for part in range(together)]
                for number, each in enumerate(filters):
                    product = multiplied(asm, pixels, each)
                    found.append(arith.addi(totals[column * self.vectors + number], product))
            return found

        def turn(_: Index, totals: list[ir.Value]) -> list[ir.Value]:
            return asm.loop(0, _STEPS, together, totals, step)

        count = self.chains
        begin = asm.mul(group[0], count * self.lanes)
        floats = asm.vector_type(ir.F32Type.get())
        for number, total in enumerate(asm.loop(0, self.steps // _STEPS, 1, [zero] * count, turn)):
            stored = vector.bitcast(floats, total)
            asm.store(stored, result, asm.add(begin, number * self.lanes), self.lanes)

    def _pairs(self, asm: Assembler, pixels: Sequence[ir.Value], filters: Sequence[ir.Value]) -> ir.Value:
        given = [vector.bitcast(self._kind(_HALF), each) for each in (pixels[0], filters[0])]
        return llvm.call_intrinsic(self._kind(_WORD), INTRINSICS[self.lanes * _WORD], given, [], [])

    def _bytes(self, asm: Assembler, pixels: Sequence[ir.Value], filters: Sequence[ir.Value]) -> ir.Value:
        halves = self._kind(_HALF)
        sums = [
            llvm.call_intrinsic(
                halves, _BYTES[self.lanes * _WORD], [vector.bitcast(self._kind(_BYTE), each) for each in pair], [], []
            )
            for pair in zip(pixels, filters, strict=True)
        ]
        total = sums[0]
        for each in sums[1:]:
            total = arith.addi(total, each)
        ones = arith.constant(
            halves, ir.DenseElementsAttr.get_splat(halves, ir.IntegerAttr.get(halves.element_type, 1))
        )
        return llvm.call_intrinsic(self._kind(_WORD), INTRINSICS[self.lanes * _WORD], [total, ones], [], [])

    def _kind(self, bits: int) -> ir.VectorType:
        return ir.VectorType.get([self.lanes * _WORD // bits], ir.IntegerType.get_signless(bits))


_METHODS: Mapping[str, int] = {"pairs of 16 bits": 0, "pairs of bytes": 1, "two pairs of bytes": 2}
# Pixels and vectors of tiles.
_SHAPES = ((4, 2), (5, 2), (3, 3), (9, 1), (10, 1))


def tile_limits(target: Target, threads: int) -> dict[tuple[str, str], Limit]:
    """What each method does at most, by its name and by the tile.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    lanes = machine_of(target).lanes
    found = {}
    for name, sums in _METHODS.items():
        for columns, vectors in _SHAPES:
            groups, steps = _GROUPS_PER_THREAD * threads, _STEPS * _TURNS
            code = TileProducts(lanes, columns * vectors, steps, groups, vectors, sums)
            roofline = Roofline(f"tile_products_{columns}_{vectors}_{sums}", code)
            task = roofline.task
            case = BenchmarkCase(task.key, task.inputs, task.weights, task.results, (roofline.variant(target),))
            found[name, f"{columns} x {vectors}"] = Limit(case, code.operations)
    return found

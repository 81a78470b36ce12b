"""Convolutions and matrix products in 8 bits and in bf16 by AArch64's instructions (Arm, Architecture Reference Manual
for A-profile, SDOT and SMMLA, BFDOT and BFMMLA).

SDOT adds four products to each sum of a vector, BFDOT two. SMMLA multiplies two rows of eight numbers by two others,
BFMMLA two rows of four: two pixels of a tile by two channels. Integers are signed, so sums need no correction for a
bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, Routine
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import ByInstruction, DotElement, Multiplier, load_group
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, build_kernel
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.codegen.routines.vector.product import Product

# A register has two rows of eight bytes.
_ROW_BITS = 64
_BYTES = 16
# Shuffle masks that collect the first halves, or the last halves, of two registers; applied twice they are the
# identity.
_FIRST_HALVES, _LAST_HALVES = (0, 1, 4, 5), (2, 3, 6, 7)
# Each of a register tile's vectors of channels, at most eight, takes a second register of filters.
_MORE_OPERANDS = 8


@dataclass(frozen=True)
class MatrixElement(DotElement):
    """SMMLA or BFMMLA, which multiply two pixels at once."""

    def multiplier(self, *, has_sign: bool = True) -> Multiplier:
        """The multiplier by the instruction, which takes only signed numbers."""
        return Rows(self)


@dataclass(frozen=True)
class Rows(ByInstruction):
    """Multiplies the groups of two adjacent pixels by those of a vector of channels.

    An accumulator holds four sums: two channels of the first pixel, then the same of the second. The first accumulator
    has the first two channels of a vector, the second accumulator the other two.
    """

    pixels: int = 2

    @property
    def bytes(self) -> int:
        """Bytes of a filter's element."""
        return _ROW_BITS // 8 // self.group

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Accumulators of two pixels from the sums of each, a vector of channels."""
        first, second = sums
        return [vector.shuffle(first, second, lanes) for lanes in (_FIRST_HALVES, _LAST_HALVES)]

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """The sums from the accumulators."""
        return self.open(accumulators)

    def broadcast(self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None]) -> ir.Value:
        """The groups of two pixels, one after the other."""
        word = ir.IntegerType.get_signless(_ROW_BITS)
        one = ir.VectorType.get([1], word)
        zero = arith.constant(one, ir.DenseElementsAttr.get_splat(one, ir.IntegerAttr.get(word, 0)))
        rows = [
            zero if offset is None else load_group(asm, memory, offset, self.group, self.skipped) for offset in offsets
        ]
        register = ir.VectorType.get([2 * self.group], ir.MemRefType(memory.type).element_type)
        return vector.bitcast(register, vector.shuffle(*rows, [0, 1]))

    def factors(
        self, asm: Assembler, memory: ir.Value, offsets: Sequence[Index | None], steps: int
    ) -> Sequence[ir.Value]:
        """The groups of two pixels for each of some adjacent steps."""
        starts = [[None if at is None else asm.add(at, step * self.group) for at in offsets] for step in range(steps)]
        return [self.broadcast(asm, memory, start) for start in starts]

    def load(self, asm: Assembler, memory: ir.Value, offset: Index, count: int) -> ir.Value:
        """The groups of a vector of channels."""
        kind = ir.VectorType.get([asm.lanes * self.group], ir.MemRefType(memory.type).element_type)
        return vector.load(kind, memory, [asm.value(offset)])

    def add(self, asm: Assembler, lhs: ir.Value, rhs: ir.Value, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Add the products of both pixels to the accumulators, each for two channels."""
        size = 2 * self.group
        halves = [vector.shuffle(rhs, rhs, range(start, start + size)) for start in (0, size)]
        return [
            llvm.call_intrinsic(total.type, self.element.product, [total, lhs, half], [], [])
            for total, half in zip(accumulators, halves, strict=True)
        ]


# It takes codes of fewer than 8 bits as numbers above zero.
SDOT = DotElement("i8", 4, "i32", "llvm.aarch64.neon.sdot.v4i32.v16i8", ((_BYTES, (("dotprod",),)),), most_bits=7)
SMMLA = MatrixElement(
    "i8", 8, "i32", "llvm.aarch64.neon.smmla.v4i32.v16i8", ((_BYTES, (("i8mm",),)),), operands=_MORE_OPERANDS
)
BFDOT = DotElement("bf16", 2, "f32", "llvm.aarch64.neon.bfdot.v4f32.v8bf16", ((_BYTES, (("bf16",),)),))
BFMMLA = MatrixElement("bf16", 4, "f32", "llvm.aarch64.neon.bfmmla", ((_BYTES, (("bf16",),)),), operands=_MORE_OPERANDS)


@dataclass(frozen=True)
class NeonDots:
    """Convolution or matrix product of narrow numbers in register tiles, with elementwise ops fused.

    Parameters: those of ``Direct`` and ``Product``.

    Attributes:
        name: the algorithm in descriptors.
        element: the instruction.
        storage: element type that activations and the result are stored in.
    """

    name: str
    element: DotElement
    storage: str | None = QUANTISED

    @property
    def traits(self) -> Traits:
        return self._kernel(LayerKind.CONVOLUTION).traits

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        return self._kernel(task.kind).parameters(task, target)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        return self._kernel(task.kind).layer(task, parameters, target)

    def _kernel(self, kind: LayerKind) -> Direct | Product:
        if kind is LayerKind.CONTRACTION:
            return Product(self.name, storage=self.storage, element=self.element)
        return Direct(self.name, storage=self.storage, element=self.element)


_KERNELS = (NeonDots("neon_matrix_dots", SMMLA), NeonDots("neon_dots", SDOT))
NEON_DOTS: tuple[Routine, ...] = (*_KERNELS, *(IntegerFactor(kernel) for kernel in _KERNELS))
"""In 8 bits. The routine that is probably faster comes first; those for models that find ranges at run time come last.
"""
NEON_BFLOAT_DOTS: tuple[Routine, ...] = (
    NeonDots("neon_matrix_dots", BFMMLA, "bf16"),
    NeonDots("neon_dots", BFDOT, "bf16"),
    FusedWinograd("fused_winograd_neon", storage="bf16", element=BFDOT),
)
"""In bf16."""

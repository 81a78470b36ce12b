"""Instructions that multiply a matrix of 16 rows by one of 8 columns (``mma.sync``), 32 bytes deep in every type."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import I8
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.mlir.iree_compiler import arith, ir, math, vector

ROWS, COLUMNS, DEPTH_BYTES = 16, 8, 32
"""Extents of one product; its depth is that of 32 bytes."""

# TF32 has 13 bits of mantissa less than f32; half of the last bit that it keeps is added before the others are cut.
_HALF, _KEPT = 1 << 12, -(1 << 13)
# The largest number that is finite when it is rounded.
_MOST = (2 - 2**-11 - 2**-23) * 2.0**127
TF32_MANTISSA = 10
"""Bits of the mantissa that TF32 has."""


@dataclass(frozen=True)
class MatrixInstruction:
    """How operands of one type are multiplied.

    Attributes:
        element: type of the operands in memory.
        bits: of that type.
        parts: numbers that each operand is split into; 2 gives three products for one (3xTF32).
        is_tf32: whether operands are f32 of which the instruction reads 19 bits.
    """

    element: str
    bits: int
    parts: int = 1
    is_tf32: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether operands and sums are integers."""
        return self.element == I8

    @property
    def sum_type(self) -> ir.Type:
        """The sums' type in MLIR."""
        return ir.IntegerType.get_signless(32) if self.is_integer else ir.F32Type.get()

    @property
    def bytes(self) -> int:
        """Bytes of an operand's element."""
        return self.bits // 8

    @property
    def depth(self) -> int:
        """Elements of the reduction in one product."""
        return DEPTH_BYTES // self.bytes

    @property
    def products(self) -> int:
        """Instructions for one product."""
        return 1 if self.parts == 1 else 3

    @property
    def element_type(self) -> ir.Type:
        """The operands' type in MLIR."""
        return ir.Type.parse(self.element)

    def split(self, fragment: ir.Value, *, is_packed: bool = False) -> tuple[ir.Value, ...]:
        """An operand's parts, the largest first; the instruction itself cuts what it does not read of a number.

        A single part of TF32 is rounded, unless it ``is_packed``, and was rounded then. What is not finite, or would
        not be when it is rounded, stays as it is: the last NaN would become zero.

        For 3xTF32 (Markidis et al., 2018, section 5; as in CUTLASS) they are the number rounded to TF32, and what is
        left, of which the instruction reads the first 11 bits: 2^-21 of the number is lost at most. The first part is
        always finite, so that of an infinity an infinity is left, and not a NaN. Operands that are packed are weights,
        which are taken to be finite.
        """
        if not self.is_tf32 or (is_packed and self.parts == 1):
            return (fragment,)
        words = ir.VectorType.get(ir.VectorType(fragment.type).shape, ir.IntegerType.get_signless(32))
        if self.parts == 1:
            return (_rounded(fragment, words),)
        finite = fragment if is_packed else _clamped(fragment)
        bits = arith.addi(arith.bitcast(words, finite), _every(words, _HALF))
        large = arith.bitcast(fragment.type, arith.andi(bits, _every(words, _KEPT)))
        return large, arith.subf(fragment, large)

    def multiply(
        self, asm: ThreadAssembler, left: tuple[ir.Value, ...], right: tuple[ir.Value, ...], total: ir.Value
    ) -> ir.Value:
        """``total + left * right`` of split operands, the smallest products first."""
        shape = (ROWS, COLUMNS, self.depth)
        pairs = [(0, 0)] if self.parts == 1 else [(1, 0), (0, 1), (0, 0)]
        for one, other in pairs:
            total = asm.multiply_matrices(left[one], right[other], total, shape, is_tf32=self.is_tf32)
        return total


THREE_TF32 = MatrixInstruction("f32", 32, parts=2, is_tf32=True)
"""f32 within its tolerance: each number is the sum of two of TF32."""
TF32 = MatrixInstruction("f32", 32, is_tf32=True)
HALF = MatrixInstruction("f16", 16)
BFLOAT = MatrixInstruction("bf16", 16)

BYTES = MatrixInstruction("i8", 8)

INSTRUCTIONS = {None: THREE_TF32, "tf32": TF32, "f16": HALF, "bf16": BFLOAT, "i8": BYTES}
"""The instruction by the type that is multiplied; None for f32."""


def _every(kind: ir.VectorType, number: float) -> ir.Value:
    """A vector of one number."""
    element = kind.element_type
    attribute = ir.IntegerAttr.get(element, number) if isinstance(number, int) else ir.FloatAttr.get(element, number)
    return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))


def _rounded(fragment: ir.Value, words: ir.VectorType) -> ir.Value:
    """Numbers whose first 19 bits are those that they are rounded to, if that is finite."""
    bits, most = arith.bitcast(words, fragment), _every(ir.VectorType(fragment.type), _MOST)
    is_finite = arith.cmpf(arith.CmpFPredicate.OLE, math.absf(fragment), most)
    return arith.bitcast(fragment.type, arith.select(is_finite, arith.addi(bits, _every(words, _HALF)), bits))


def _clamped(fragment: ir.Value) -> ir.Value:
    """The nearest numbers that are finite when they are rounded; any for a NaN."""
    most = _every(ir.VectorType(fragment.type), _MOST)
    return arith.maxnumf(arith.minnumf(fragment, most), arith.negf(most))


def halves(fragment: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The fragments of two matrices of 8 columns that were loaded at once."""
    count, size = ir.VectorType(fragment.type).shape

    def part(first: int) -> ir.Value:
        kind = ir.VectorType.get([count // 2, size], ir.VectorType(fragment.type).element_type)
        return vector.extract_strided_slice(kind, fragment, [first], [count // 2], [1])

    return part(0), part(count // 2)

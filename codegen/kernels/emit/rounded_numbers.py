"""Arithmetic on quantised values: known facts about vectors save divisions and conversions, and change no result.

A pair of QuantizeLinear and DequantizeLinear is ``scale * clip(round(x / scale))``. If x is a sum of integers times a
factor, the factor is divided instead, as ONNX Runtime's integer operators do. If the result is stored in 8 bits, the
integer is stored before the scale multiplies it.
"""

from __future__ import annotations

import math

import numpy as np

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.known_values import Clipped, Scaled
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm
from sartor.codegen.mlir.iree_compiler import math as functions
from sartor.codegen.mlir.operations import defining_op

# Beyond these exponents a quotient's remainder may be subnormal, or the reciprocal infinite.
_MOST_EXPONENT = 60
_POWER_OF_TWO = 0.5
# A bound of the relative error of an integer after a product and a quotient in f32.
_DEVIATION = 2.0**-21
# CPU features with an instruction that rounds vectors. Without one LLVM would call a function that kernels lack.
_ROUNDING = ("avx", "sse4.1", "neon")
# Comparisons that find numbers that are too small, and too large. The first two hold for NaN too.
_CLIPPING = {
    int(arith.CmpFPredicate.ULT): (True, False),
    int(arith.CmpFPredicate.UGT): (False, False),
    int(arith.CmpFPredicate.OLT): (True, True),
    int(arith.CmpFPredicate.OGT): (False, True),
}


def dequantised(asm: Assembler, sums: ir.Value, start: ir.Value, factor: ir.Value) -> ir.Value:
    """``sums * factor + start``, the real values of sums of products of quantised numbers.

    Args:
        asm: emits the code.
        sums: 32-bit integers, already corrected for zero points.
        start: real values, such as a bias.
        factor: product of the scales, positive.
    """
    return scaled(asm, arith.sitofp(start.type, sums), start, factor)


def scaled(asm: Assembler, sums: ir.Value, start: ir.Value, factor: ir.Value) -> ir.Value:
    """``sums * factor + start``, computed as ``(sums + start / factor) * factor``.

    If ``start`` is integers times the same factor, as the bias of a quantised model is, their sum is exact.

    Args:
        asm: emits the code.
        sums: integers.
        start: real values, such as a bias.
        factor: positive.
    """
    number = sums
    if asm.known.constants.get(start) != 0.0:
        number = arith.addf(sums, in_units(asm, start, factor))
    product = arith.mulf(number, factor)
    asm.known.scaled[product] = Scaled(number, factor)
    return product


def in_units(asm: Assembler, start: ir.Value, factor: ir.Value) -> ir.Value:
    """``start / factor``, replaced by the nearest integer where only rounding errors separate them."""
    quotient = arith.divf(start, factor)
    nearest = rounded(asm, quotient)
    distance = functions.absf(arith.subf(quotient, nearest))
    allowed = arith.mulf(functions.absf(quotient), _splat(asm, _DEVIATION))
    return arith.select(arith.cmpf(arith.CmpFPredicate.OLE, distance, allowed), nearest, quotient)


def divided(asm: Assembler, dividend: ir.Value, divisor: ir.Value) -> ir.Value | None:
    """The quotient by a constant without a division instruction; None if that is not possible.

    The product with the reciprocal is corrected by its remainder, which gives the nearest number (Markstein,
    Computation of elementary functions on the IBM RISC System/6000 processor, 1990, theorem 8.4); infinities have no
    remainder. A value that was scaled and clipped is divided before it is clipped, which gives the same.
    """
    known, number = asm.known, asm.known.constants.get(divisor)
    if number is None or not 0.0 < number < math.inf or abs(math.frexp(number)[1]) > _MOST_EXPONENT:
        return None
    if dividend in known.scaled:
        of = known.scaled[dividend]
        return arith.mulf(of.number, divided(asm, of.factor, divisor))
    if dividend in known.clipped and known.unclipped(dividend) in known.scaled:
        inner = divided(asm, known.clipped[dividend].number, divisor)
        return None if inner is None else _clipped_quotient(asm, inner, known.clipped[dividend], number)
    reciprocal = _splat(asm, 1.0 / number)
    first = arith.mulf(dividend, reciprocal)
    if math.frexp(number)[0] == _POWER_OF_TWO:
        return first
    rest = asm.multiply_add(arith.negf(first), divisor, dividend)
    exact = asm.multiply_add(rest, reciprocal, first)
    if known.is_finite(dividend, number):
        return exact
    return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, exact, exact), first, exact)


def _clipped_quotient(asm: Assembler, quotient: ir.Value, of: Clipped, divisor: float) -> ir.Value:
    bound = _splat(asm, float(np.float32(asm.known.constants[of.bound]) / np.float32(divisor)))
    return clip(asm, quotient, bound, is_least=of.is_least, keeps_nan=of.keeps_nan)


def clip(asm: Assembler, number: ir.Value, bound: ir.Value, *, is_least: bool, keeps_nan: bool = False) -> ir.Value:
    """Replace numbers beyond a constant bound, and NaN unless it is kept, by the bound.

    Equal numbers are replaced too, unless NaN is kept, as by the single instruction that CPUs have for this: a maximum
    or minimum that gives its second operand for NaN and for equal numbers.
    """
    if keeps_nan:
        beyond = arith.CmpFPredicate.OLT if is_least else arith.CmpFPredicate.OGT
    else:
        beyond = arith.CmpFPredicate.ULE if is_least else arith.CmpFPredicate.UGE
    clipped_number = arith.select(arith.cmpf(beyond, number, bound), bound, number)
    known = asm.known
    known.clipped[clipped_number] = Clipped(number, bound, is_least, keeps_nan)
    if known.is_integer(number) and known.is_integer(bound):
        known.integers.add(clipped_number)
    return clipped_number


def clipped(asm: Assembler, condition: ir.Value, bound: ir.Value, number: ir.Value) -> ir.Value | None:
    """The result of an ``arith.select`` that bounds numbers by a constant; None if it does something else."""
    compared = defining_op(condition)
    if bound not in asm.known.constants or compared is None or compared.name != "arith.cmpf":
        return None
    clipping = _CLIPPING.get(ir.IntegerAttr(compared.attributes["predicate"]).value)
    if clipping is None or list(compared.operands) != [number, bound]:
        return None
    is_least, keeps_nan = clipping
    return clip(asm, number, bound, is_least=is_least, keeps_nan=keeps_nan)


def rounded(asm: Assembler, number: ir.Value) -> ir.Value:
    """Round to the nearest integers, ties to even.

    CPUs have an instruction for it, but IREE expands ``math.roundeven`` to some 25 operations before LLVM sees it.
    """
    if not any(asm.has(feature) for feature in _ROUNDING):
        nearest = functions.roundeven(number)
    else:
        nearest = llvm.call_intrinsic(number.type, "llvm.roundeven", [number], [], [])
    asm.known.integers.add(nearest)
    asm.known.rounded[nearest] = number
    return nearest


def note(asm: Assembler, name: str, result: ir.Value, operands: list[ir.Value]) -> None:
    """Record facts about the result of an op on vectors."""
    known = asm.known
    if name == "arith.mulf":
        number, factor = operands
        if number in known.integers and factor in known.constants:
            known.multiples[result] = Scaled(number, factor)


def _splat(asm: Assembler, value: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), value))

"""Short code for functions that IREE expands to long code."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.rounded_numbers import divided
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm
from sartor.codegen.mlir.iree_compiler import math as functions

# erf(x) = x P(x^2) / Q(x^2) up to a bound at which it is exactly one in f32, with fused multiply-add and without: GELU
# ends at zero. Fitted to relative error by iteratively reweighted least squares (Sanathanan and Koerner, 1963) on
# Chebyshev nodes; 5e-7 at most in f32, lowest power first.
_NUMERATOR = (
    1.1283791065216064,
    0.1916702538728714,
    0.05285225808620453,
    0.00380330765619874,
    0.0002828315773513168,
    2.001509528781753e-06,
)
_DENOMINATOR = (
    1.0,
    0.5031962394714355,
    0.11457382887601852,
    0.015045922249555588,
    0.0011663488112390041,
    3.748329618247226e-05,
)
_BOUND = 3.98
_LANES_OF_512 = 16

# erf(x) = x P(x^2) for results that are rounded to bf16, without a division. Fitted to absolute error (Lawson, 1961),
# 2e-4 at most; exactly one at the bound and beyond, so that GELU ends at zero.
_ROUGH = (
    1.1274415254592896,
    -0.3709193468093872,
    0.10433530062437057,
    -0.020511267706751823,
    0.0026024417020380497,
    -0.0001883886579889804,
    5.844273800903466e-06,
)
_ROUGH_BOUND = 2.75

# tanh(x) = x P(x^2) / Q(x^2), fitted like erf; 3e-7 at most in f32, and exactly one at the bound.
_TANH_NUMERATOR = (
    1.0,
    0.1368086189031601,
    0.003869514912366867,
    2.803144343488384e-05,
    3.0642823389825935e-08,
    -1.2246445177388487e-11,
)
_TANH_DENOMINATOR = (
    1.0,
    0.4701419472694397,
    0.027250181883573532,
    0.00039407252916134894,
    1.2890440075352672e-06,
)
_TANH_BOUND = 9.15

# exp(x) = 2^n exp(r), n the integer nearest to x / ln 2 and |r| <= ln 2 / 2 (Cody and Waite, 1980, chapter 6). Twice
# exp(r), fitted to relative error as above; 8e-8 before rounding, lowest power first.
_TWICE_EXP = (
    2.000000238418579,
    1.9999994039535522,
    0.9999778270721436,
    0.3333515226840973,
    0.08383125811815262,
    0.01659523881971836,
)
# The same with four coefficients; error 8e-5.
_ROUGH_TWICE_EXP = 1.999855875968933, 2.00032901763916, 1.0099363327026367, 0.33133482933044434
_LOG2_E = 1.4426950408889634
_LN_2 = 0.693145751953125, 1.4286068203094172e-06
# Adding 1.5 * 2^23 to a number leaves its integral part in the lowest bits; 126 more is the exponent of 2^(n - 1).
_EXPONENT_OF_HALF = 126
_TO_EXPONENT = 12582912.0 + _EXPONENT_OF_HALF
_HALF = 0.5
_MANTISSA_BITS = 23
# exp is zero below the first bound and infinite above the second; n then gives the exponents of zero and of 2^127.
_EXP_BOUNDS = -87.6, 89.0


def erf(asm: Assembler, argument: ir.Value) -> ir.Value:
    """The error function of a vector of f32.

    IREE's takes 80 cycles for a vector, as long as the rest of a layer of a matrix product and GELU.
    """
    bound = _ROUGH_BOUND if asm.is_rough else _BOUND
    inside = _between(asm, argument, -bound, bound)
    square = arith.mulf(inside, inside)
    if asm.is_rough:
        return arith.mulf(inside, _polynomial(asm, _ROUGH, square))
    quotient = arith.divf(_polynomial(asm, _NUMERATOR, square), _polynomial(asm, _DENOMINATOR, square))
    return arith.mulf(inside, quotient)


def tanh(asm: Assembler, argument: ir.Value) -> ir.Value:
    """The hyperbolic tangent of a vector of f32."""
    inside = _between(asm, argument, -_TANH_BOUND, _TANH_BOUND)
    square = arith.mulf(inside, inside)
    odd = arith.mulf(inside, _polynomial(asm, _TANH_NUMERATOR, square))
    return quotient(asm, odd, _polynomial(asm, _TANH_DENOMINATOR, square))


def exp(asm: Assembler, argument: ir.Value) -> ir.Value:
    """The exponential function of a vector of f32; results below twice the smallest normal number become zero."""
    inside = _between(asm, argument, *_EXP_BOUNDS)
    whole, power = _nearest_power(asm, inside)
    rest = inside
    for part in (sum(_LN_2),) if asm.is_rough else _LN_2:
        rest = asm.multiply_add(whole, _splat(asm, -part), rest)
    factors = _ROUGH_TWICE_EXP if asm.is_rough else _TWICE_EXP
    return arith.mulf(_polynomial(asm, factors, rest), power)


def quotient(asm: Assembler, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """The quotient of two vectors of f32.

    A constant divisor needs no division. Where results are rough, AVX-512's reciprocal of 14 bits is used, because a
    division of 16 numbers keeps its port busy for 16 cycles.
    """
    known = divided(asm, dividend, divisor)
    if known is not None:
        return known
    if not (asm.is_rough and asm.lanes == _LANES_OF_512 and asm.has("avx512f")):
        return arith.divf(dividend, divisor)
    every = asm.integer(-1, _LANES_OF_512)
    operands = [divisor, _splat(asm, 0.0), every]
    reciprocal = llvm.call_intrinsic(divisor.type, "llvm.x86.avx512.rcp14.ps.512", operands, [], [])
    return arith.mulf(dividend, reciprocal)


def _between(asm: Assembler, argument: ir.Value, low: float, high: float) -> ir.Value:
    """The argument, limited to the bounds.

    Comparisons are used rather than minima: they become one instruction, and NaN stays NaN.
    """
    least, greatest = _splat(asm, low), _splat(asm, high)
    above = arith.select(arith.cmpf(arith.CmpFPredicate.OLT, argument, least), least, argument)
    return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, above, greatest), greatest, above)


def _nearest_power(asm: Assembler, argument: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The integer n nearest to x / ln 2, and 2^(n - 1).

    A large number is added to round, which leaves the exponent in the lowest bits. Compilers of GPUs may reassociate
    sums, so that the large number would cancel.
    """
    integer = ir.IntegerType.get_signless(32)
    if asm.reassociates:
        whole = functions.floor(asm.multiply_add(argument, _splat(asm, _LOG2_E), _splat(asm, _HALF)))
        number = arith.fptosi(asm.vector_type(integer), whole)
        return whole, _power(asm, arith.addi(number, asm.splat(ir.IntegerAttr.get(integer, _EXPONENT_OF_HALF))))
    shifted = asm.multiply_add(argument, _splat(asm, _LOG2_E), _splat(asm, _TO_EXPONENT))
    bits = arith.bitcast(asm.vector_type(integer), shifted)
    return arith.subf(shifted, _splat(asm, _TO_EXPONENT)), _power(asm, bits)


def _power(asm: Assembler, bits: ir.Value) -> ir.Value:
    """The power of two whose exponent is in the lowest bits."""
    integer = ir.IntegerType.get_signless(32)
    exponent = arith.shli(bits, asm.splat(ir.IntegerAttr.get(integer, _MANTISSA_BITS)))
    return arith.bitcast(asm.vector_type(ir.F32Type.get()), exponent)


def _polynomial(asm: Assembler, coefficients: Sequence[float], argument: ir.Value) -> ir.Value:
    """Horner's scheme."""
    *rest, total = (_splat(asm, coefficient) for coefficient in coefficients)
    for coefficient in reversed(rest):
        total = asm.multiply_add(total, argument, coefficient)
    return total


def _splat(asm: Assembler, value: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), value))

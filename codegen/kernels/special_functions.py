"""Functions that IREE expands into long code, in forms that suit a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.iree_compiler import arith, ir, vector
from sartor.codegen.kernels.assembler import Assembler

# erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, beyond which it is one to f32. Fitted to relative error by iteratively
# reweighted least squares (Sanathanan and Koerner, 1963) on Chebyshev nodes; 5e-7 at most in f32, lowest power first.
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
_BOUND = 4.0


def erf(asm: Assembler, argument: ir.Value) -> ir.Value:
    """The error function of a vector of f32.

    IREE's takes 80 cycles for a vector, as long as all else in a layer of matrix product and GELU takes together.
    """
    low, high = (_splat(asm, each) for each in (-_BOUND, _BOUND))
    inside = arith.maximumf(arith.minimumf(argument, high), low)
    square = arith.mulf(inside, inside)
    quotient = arith.divf(_polynomial(asm, _NUMERATOR, square), _polynomial(asm, _DENOMINATOR, square))
    return arith.mulf(inside, quotient)


def _polynomial(asm: Assembler, coefficients: Sequence[float], argument: ir.Value) -> ir.Value:
    """Horner's scheme."""
    *rest, total = (_splat(asm, each) for each in coefficients)
    for coefficient in reversed(rest):
        total = vector.fma(total, argument, coefficient)
    return total


def _splat(asm: Assembler, value: float) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), value))

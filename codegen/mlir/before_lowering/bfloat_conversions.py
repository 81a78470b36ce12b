"""Converts integers to bf16 by way of f32, which code for CPUs without bf16 arithmetic cannot do at once.

IREE 3.13 expands the rounding of f32 to bf16, and leaves ``sitofp`` and ``uitofp`` to bf16 to LLVM, which calls a
function of its library (``__truncsfbf2``) where the CPU has no instruction: such an executable does not link. MLIR
folds a rounding of a converted integer into the conversion, so the bits are rounded by integer arithmetic.

ONNX Runtime converts by way of f32 too: integers beyond 2**24 are rounded twice in both.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.mlir.snippet import inline

_CONVERSIONS = ("arith.sitofp", "arith.uitofp")
# To nearest, ties to even; no integer is a NaN, or too large for bf16.
_ROUNDING = """util.func private @convert(%integer: {integer}) -> bf16 {{
  %half = arith.constant 32767 : i32
  %one = arith.constant 1 : i32
  %sixteen = arith.constant 16 : i32
  %wide = {conversion} %integer : {integer} to f32
  %bits = arith.bitcast %wide : f32 to i32
  %high = arith.shrui %bits, %sixteen : i32
  %odd = arith.andi %high, %one : i32
  %tied = arith.addi %half, %odd : i32
  %sum = arith.addi %bits, %tied : i32
  %rounded = arith.shrui %sum, %sixteen : i32
  %narrow = arith.trunci %rounded : i32 to i16
  %result = arith.bitcast %narrow : i16 to bf16
  util.return %result : bf16
}}"""


def convert_by_floats(module: ir.Module) -> None:
    """Replace each conversion of an integer to bf16 by one to f32 and a rounding, in place."""
    with module.context, ir.Location.unknown(module.context):
        for op in [op for op in nested(module.operation) if _makes_bfloat(op)]:
            text = _ROUNDING.format(conversion=op.name, integer=op.operands[0].type)
            (result,) = inline(text, list(op.operands), ir.InsertionPoint(op))
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _makes_bfloat(op: ir.Operation) -> bool:
    return op.name in _CONVERSIONS and isinstance(op.results[0].type, ir.BF16Type)

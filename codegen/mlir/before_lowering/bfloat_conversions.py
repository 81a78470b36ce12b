"""Converts integers to bf16 by way of f32, which code for CPUs without bf16 arithmetic cannot do at once.

IREE 3.13 expands the rounding of f32 to bf16, and leaves ``sitofp`` and ``uitofp`` to bf16 to LLVM, which calls a
function of its library (``__truncsfbf2``) where the CPU has no instruction: such an executable does not link. MLIR
folds a rounding of a converted integer into the conversion, also once two operations are fused. A sum with zero stands
between them, which changes no integer and which MLIR does not fold, as it would make 0 of -0.

ONNX Runtime converts by way of f32 too: integers beyond 2**24 are rounded twice in both.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.mlir.snippet import inline

_CONVERSIONS = ("arith.sitofp", "arith.uitofp")
_CONVERTING = """util.func private @convert(%integer: {integer}) -> {result} {{
  %zero = arith.constant 0.0 : f32
  %wide = {conversion} %integer : {integer} to f32
  %sum = arith.addf %wide, %zero : f32
  {returned}
}}"""
_RETURNED = {
    "f32": "util.return %sum : f32",
    "bf16": "%narrow = arith.truncf %sum : f32 to bf16\n  util.return %narrow : bf16",
}


def convert_by_floats(module: ir.Module) -> None:
    """Keep conversions of integers apart from roundings to bf16, in place, where a module has any."""
    with module.context, ir.Location.unknown(module.context):
        if not any(_rounds(op) for op in nested(module.operation)):
            return
        for op in [op for op in nested(module.operation) if _is_conversion(op)]:
            result = str(op.results[0].type)
            text = _CONVERTING.format(
                conversion=op.name, integer=op.operands[0].type, result=result, returned=_RETURNED[result]
            )
            (converted,) = inline(text, list(op.operands), ir.InsertionPoint(op))
            op.results[0].replace_all_uses_with(converted)
            op.erase()


def _rounds(op: ir.Operation) -> bool:
    return op.name in (*_CONVERSIONS, "arith.truncf") and isinstance(op.results[0].type, ir.BF16Type)


def _is_conversion(op: ir.Operation) -> bool:
    return op.name in _CONVERSIONS and str(op.results[0].type) in _RETURNED

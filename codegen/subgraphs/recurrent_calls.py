"""Replaces ONNX nodes that stand for recurrent loops by calls, and these by loops."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.subgraphs.declared_calls import call_instead, callee_of, inline, operators
from sartor.codegen.subgraphs.recurrent_loops import RecurrentLoop

_OPERATOR = "RecurrentLoop"


def call_recurrences(module: ir.Operation) -> None:
    """Replace operators that stand for loops by calls, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        for number, op in enumerate(operators(module, _OPERATOR)):
            cell, order, activations, last = (
                ir.StringAttr(op.attributes[f"torch.onnx.{name}"]).value
                for name in ("cell", "order", "activations", "last")
            )
            loop = RecurrentLoop(cell, order == "reverse", tuple(activations.split("-")), last == "memory")
            call_instead(module, op, loop.symbol(number))


def expand_recurrence(call: ir.Operation) -> None:
    """Replace an op by its loop, in place, if it is the call of a recurrence."""
    loop = RecurrentLoop.of_symbol(callee_of(call))
    if loop is not None:
        operands = [TensorType.parse(str(value.type)) for value in call.operands]
        inline(call, loop.function(operands, str(call.location)))

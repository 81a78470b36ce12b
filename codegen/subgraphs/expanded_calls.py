"""All calls that stand for ONNX nodes which IREE's importer does not know."""

from __future__ import annotations

import io

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, entry_function, symbol
from sartor.codegen.subgraphs import encoded_look_ups, encoded_products, recurrent_loops, written_rows
from sartor.codegen.subgraphs.declared_calls import call_instead, callee_of, cast_bits, inline, operators
from sartor.codegen.subgraphs.encoded_look_ups import call_look_ups, expand_look_up
from sartor.codegen.subgraphs.encoded_products import call_products, expand_product
from sartor.codegen.subgraphs.recurrent_loops import RecurrentLoop
from sartor.codegen.subgraphs.written_rows import call_writes, expand_write

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


_PREFIXES = (encoded_look_ups.PREFIX, encoded_products.PREFIX, recurrent_loops.PREFIX, written_rows.PREFIX)


def call_functions(module: ir.Operation) -> None:
    """Replace operators by calls of functions that are only declared, or by ops of other dialects, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    call_recurrences(module)
    call_products(module)
    call_look_ups(module)
    call_writes(module)
    cast_bits(module)


def expanded(bytecode: bytes) -> bytes:
    """Bytecode of a module with its calls expanded.

    Args:
        bytecode: linalg on tensors, as it was imported.
    """
    if not any(prefix.encode() in bytecode for prefix in _PREFIXES):
        return bytecode
    module = ir.Module.parse(bytecode, ir.Context())
    expand_calls(module)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def expand_calls(module: ir.Module) -> None:
    """Replace each call in the entry function by what it stands for, in place, and remove the declarations.

    Args:
        module: linalg on tensors, as it was imported.
    """
    with module.context, ir.Location.unknown(module.context):
        for view in list(body_of(entry_function(module)).operations):
            expand_recurrence(view.operation)
        for view in list(body_of(entry_function(module)).operations):
            expand_product(view.operation)
        for view in list(body_of(entry_function(module)).operations):
            expand_look_up(view.operation)
        for view in list(body_of(entry_function(module)).operations):
            expand_write(view.operation)
        for view in list(module.body.operations):
            if view.operation.name == "util.func" and symbol(view.operation).startswith(_PREFIXES):
                view.operation.erase()

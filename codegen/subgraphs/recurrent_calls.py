"""Replaces ONNX nodes that stand for recurrent loops by calls of functions that are only declared, and these by loops.

IREE's lowering of ONNX leaves such calls alone, and lowers what is around them.
"""

from __future__ import annotations

import io

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, entry_function, nested, remap, symbol
from sartor.codegen.subgraphs.recurrent_loops import PREFIX, RecurrentLoop, called_loop

_OPERATOR = "onnx.RecurrentLoop"
_VERSIONS = "torch.onnx_meta.ir_version = 8 : si64, torch.onnx_meta.opset_version = 17 : si64"


def call_recurrences(module: ir.Operation) -> None:
    """Replace operators that stand for loops by calls, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        operators = [each for each in nested(module) if each.name == "torch.operator"]
        found = [each for each in operators if ir.StringAttr(each.attributes["name"]).value == _OPERATOR]
        for number, op in enumerate(found):
            cell, order, activations, last = (
                ir.StringAttr(op.attributes[f"torch.onnx.{each}"]).value
                for each in ("cell", "order", "activations", "last")
            )
            loop = RecurrentLoop(cell, order == "reverse", tuple(activations.split("-")), last == "memory")
            _call(module, op, loop.symbol(number))


def _call(module: ir.Operation, op: ir.Operation, name: str) -> None:
    with ir.InsertionPoint(op), op.location:
        casts = [ir.Operation.create("torch_c.to_builtin_tensor", [_builtin(each)], [each]) for each in op.operands]
        tensors = [each.results[0] for each in casts]
        kinds = ", ".join(str(each.type) for each in tensors)
        result = _builtin(op.results[0])
        callee = {"callee": ir.FlatSymbolRefAttr.get(name)}
        call = ir.Operation.create("func.call", [result], tensors, callee)
        made = ir.Operation.create("torch_c.from_builtin_tensor", [op.results[0].type], [call.results[0]])
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    text = f'func.func private @"{name}"({kinds}) -> {result} attributes {{{_VERSIONS}}}'
    ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]).insert(ir.Operation.parse(text))


def _builtin(value: ir.Value) -> ir.Type:
    """The builtin tensor type of a value of type ``!torch.vtensor<[2,3],f32>``."""
    sizes = str(value.type).partition("[")[2].partition("]")[0]
    return ir.Type.parse(str(TensorType(tuple(int(each) for each in sizes.split(",")), "f32")))


def expanded(bytecode: bytes) -> bytes:
    """Bytecode of a module with its recurrences expanded.

    Args:
        bytecode: linalg on tensors, as it was imported.
    """
    if PREFIX.encode() not in bytecode:
        return bytecode
    module = ir.Module.parse(bytecode, ir.Context())
    expand_recurrences(module)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def expand_recurrences(module: ir.Module) -> None:
    """Replace each call of a recurrence in the entry function by its loop, in place, and remove the declarations.

    Args:
        module: linalg on tensors, as it was imported.
    """
    with module.context, ir.Location.unknown(module.context):
        for view in list(body_of(entry_function(module)).operations):
            loop = called_loop(str(view.operation.attributes["callee"])) if view.operation.name == "util.call" else None
            if loop is not None:
                _inline(view.operation, loop)
        for view in list(module.body.operations):
            op = view.operation
            if op.name == "util.func" and RecurrentLoop.of_symbol(symbol(op)) is not None:
                op.erase()


def _inline(call: ir.Operation, loop: RecurrentLoop) -> None:
    operands = [TensorType.parse(str(value.type)) for value in call.operands]
    module = ir.Module.parse(loop.function(operands, str(call.location)))
    block = body_of(module.body.operations[0].operation)
    *ops, terminator = [view.operation for view in block.operations]
    mapping = dict(zip(block.arguments, call.operands, strict=True))
    for op in ops:
        clone = op.clone(ip=ir.InsertionPoint(call))
        remap(clone, mapping)
        mapping.update(zip(op.results, clone.results, strict=True))
    call.results[0].replace_all_uses_with(mapping[terminator.operands[0]])
    call.erase()

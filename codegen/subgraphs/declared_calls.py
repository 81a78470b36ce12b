"""Passes ONNX nodes that IREE's importer does not know through it: as calls of functions that are only declared, or as
ops of other dialects.

IREE's lowering of ONNX leaves both alone, and lowers what is around them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, nested, remap

_VERSIONS = "torch.onnx_meta.ir_version = 8 : si64, torch.onnx_meta.opset_version = 17 : si64"
_SHAPED = re.compile(r"!torch\.vtensor<\[([\d,]*)\],(\w+)>")


def operators(module: ir.Operation, name: str) -> list[ir.Operation]:
    """The ``torch.operator`` ops of a module that were imported from ONNX nodes of one operator."""
    calls = [op for op in nested(module) if op.name == "torch.operator"]
    return [op for op in calls if ir.StringAttr(op.attributes["name"]).value == f"onnx.{name}"]


def call_instead(module: ir.Operation, op: ir.Operation, name: str) -> None:
    """Replace an operator by a call of a function ``name``, which is declared at the module's beginning."""
    with ir.InsertionPoint(op), op.location:
        casts = [
            ir.Operation.create("torch_c.to_builtin_tensor", [_builtin(value)], [value]).results[0]
            for value in op.operands
        ]
        kinds = ", ".join(str(value.type) for value in casts)
        result = _builtin(op.results[0])
        callee = {"callee": ir.FlatSymbolRefAttr.get(name)}
        call = ir.Operation.create("func.call", [result], casts, callee)
        made = ir.Operation.create("torch_c.from_builtin_tensor", [op.results[0].type], [call.results[0]])
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    text = f'func.func private @"{name}"({kinds}) -> {result} attributes {{{_VERSIONS}}}'
    ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]).insert(ir.Operation.parse(text))


def cast_bits(module: ir.Operation) -> None:
    """Replace each ``BitCast`` by the op of numbers that keeps their bits, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        for op in operators(module, "BitCast"):
            # What has no builtin type here, as complex numbers, stays for the importer to refuse.
            if not all(_SHAPED.fullmatch(str(value.type)) for value in (op.operands[0], op.results[0])):
                continue
            with ir.InsertionPoint(op), op.location:
                given, result = _builtin(op.operands[0]), _builtin(op.results[0])
                value = ir.Operation.create("torch_c.to_builtin_tensor", [given], [op.operands[0]]).results[0]
                if given != result:
                    value = _with_bits(value, result)
                made = ir.Operation.create("torch_c.from_builtin_tensor", [op.results[0].type], [value])
            op.results[0].replace_all_uses_with(made.results[0])
            op.erase()


def _with_bits(value: ir.Value, result: ir.Type) -> ir.Value:
    """A value of another type with the same bits; a bool is a byte, which is true unless it is zero."""
    if _is_bool(value.type):
        return ir.Operation.create("arith.extui", [result], [value]).results[0]
    if _is_bool(result):
        zero = ir.Attribute.parse(f"dense<0> : {value.type}")
        zeros = ir.Operation.create("arith.constant", [value.type], [], {"value": zero}).results[0]
        unequal = {"predicate": ir.Attribute.parse("1 : i64")}
        return ir.Operation.create("arith.cmpi", [result], [value, zeros], unequal).results[0]
    return ir.Operation.create("arith.bitcast", [result], [value]).results[0]


def _is_bool(kind: ir.Type) -> bool:
    return re.search("[<x]i1>$", str(kind)) is not None


def _builtin(value: ir.Value) -> ir.Type:
    """The builtin tensor type of a value of type ``!torch.vtensor<[2,3],f32>``; integers of any sign are signless."""
    match = _SHAPED.fullmatch(str(value.type))
    assert match is not None, str(value.type)
    sizes = tuple(int(size) for size in match[1].split(",") if size)
    return ir.Type.parse(str(TensorType(sizes, re.sub("^[su]i", "i", match[2]))))


def callee_of(op: ir.Operation) -> str:
    """The name of the function that an op calls; empty if it calls none."""
    if op.name != "util.call":
        return ""
    return str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)


def inline(call: ir.Operation, function: str, arguments: Sequence[ir.Value] | None = None) -> None:
    """Replace a call by the ops of a function of one result, given as MLIR.

    Args:
        call: an op of one result.
        function: text of the function.
        arguments: of the function; by default the op's operands.
    """
    module = ir.Module.parse(function)
    block = body_of(module.body.operations[0].operation)
    *ops, terminator = [view.operation for view in block.operations]
    given = call.operands if arguments is None else arguments
    mapping = dict(zip(block.arguments, given, strict=True))
    for op in ops:
        clone = op.clone(ip=ir.InsertionPoint(call))
        remap(clone, mapping)
        mapping.update(zip(op.results, clone.results, strict=True))
    call.results[0].replace_all_uses_with(mapping[terminator.operands[0]])
    call.erase()

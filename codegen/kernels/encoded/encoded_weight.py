"""Finds the encoded weight of a layer, and the layer as it would be if that weight were a matrix of f32."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from sartor.codegen.ir.encoding import ATTRIBUTE, BlockEncoding, parts_of_rows
from sartor.codegen.ir.layer import F32, Task, TensorType
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, nested

_RESHAPES = ("tensor.collapse_shape", "tensor.extract_slice")


@dataclass(frozen=True)
class EncodedWeight:
    """A weight that a layer decodes.

    Attributes:
        encoding: how it is stored.
        parts: positions of codes, scales and zero points among the layer's weights; without the last if the zero points
            are in the middle.
        plain: the layer with the decoded matrix as the weight at the position of the codes. It does not read the other
            parts, which count as f32.
        one_of: of how many equal parts of a row that is multiplied at most one is not zero.
    """

    encoding: BlockEncoding
    parts: tuple[int, ...]
    plain: Task
    one_of: int = 1


@functools.lru_cache(maxsize=1024)
def encoded_weight(task: Task) -> EncodedWeight | Rejected:
    """The only encoded weight of a layer; Rejected if there is none, or several."""
    if f"{ATTRIBUTE} = " not in task.body:
        return Rejected("it has no weight in blocks of integers")
    module = ir.Module.parse(task.body, shared_context())
    with module.context, ir.Location.unknown(module.context):
        return _found(module, task)


def _found(module: ir.Module, task: Task) -> EncodedWeight | Rejected:
    function = module.body.operations[0].operation
    block = body_of(function)
    decoding = [view.operation for view in block.operations if ATTRIBUTE in view.operation.attributes]
    arguments = list(block.arguments)[len(task.inputs) :]
    if len(decoding) != 1 or any(part not in arguments for part in _parts(decoding[0])):
        return Rejected("its weights in blocks of integers are several, or computed")
    (op,) = decoding
    encoding = BlockEncoding.parse(ir.StringAttr(op.attributes[ATTRIBUTE]).value)
    chain = [op]
    while len(users := [use.owner.operation for use in chain[-1].results[0].uses]) == 1 and users[0].name in _RESHAPES:
        chain.append(users[0])
    matrix, parts = chain[-1].results[0], [arguments.index(part) for part in _parts(op)]
    if TensorType.parse(str(matrix.type)) != encoding.meaning:
        return Rejected("it reads its weight in blocks of integers in another shape")
    own = {op, *nested(op)}
    if any(use.owner.operation not in own for part in parts for use in arguments[part].uses):
        return Rejected("another op reads its weight in blocks of integers")
    weights = list(task.weights)
    for part in parts:
        weights[part] = replace(weights[part], dtype=F32)
    weights[parts[0]] = encoding.meaning
    matrix.replace_all_uses_with(arguments[parts[0]])
    for chained in reversed(chain):
        chained.erase()
    for argument, kind in zip(arguments, weights, strict=True):
        argument.set_type(ir.Type.parse(str(kind)))
    returned = list(block.operations)[-1].operation.operands
    signature = ir.FunctionType.get([value.type for value in block.arguments], [value.type for value in returned])
    function.attributes["function_type"] = ir.TypeAttr.get(signature)
    plain = replace(task, body=str(function.get_asm(use_local_scope=True)), weights=tuple(weights))
    return EncodedWeight(encoding, tuple(parts), plain, parts_of_rows(task))


def _parts(op: ir.Operation) -> list[ir.Value]:
    """Codes, scales and zero points that an op decodes: its operands, and codes of which it takes bytes itself."""
    read = [child.operands[0] for child in nested(op) if child.name == "tensor.extract"]
    return [*dict.fromkeys(read), *list(op.operands)[:-1]]

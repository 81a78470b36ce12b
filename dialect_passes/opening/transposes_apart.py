"""Takes transposes of heads out of products, so that products of open sizes read rows at a constant distance.

A product of known sizes may read its rows wherever they are. One of any number of rows has them at a constant distance,
which those of several heads do not have. The transpose becomes a layer of its own: before a product by a weight the
attention may compute it as well, which writes each row where it belongs; before attention, where heads that share keys
are rows of one product, it copies the queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.analysis.matmul import is_by_weight
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, Task, TensorType, ValueRef, task_key
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.subgraphs.fusion import task_of

_SUFFIX = ".turned"
_RANK = 4


def transposes_apart(graph: LayerGraph) -> LayerGraph:
    """The network with transposes that begin products, by weights or of rows of several heads, as layers of their
    own."""
    names = {layer.name for layer in graph.layers}
    divided: dict[str, tuple[int, Task, Task] | None] = {}
    layers: list[Layer] = []
    for layer in graph.layers:
        if layer.task.key not in divided:
            divided[layer.task.key] = _divided(layer.task)
        parts, name = divided[layer.task.key], f"{layer.name}{_SUFFIX}"
        if parts is None or name in names:
            layers.append(layer)
            continue
        slot, turn, product = parts
        layers.append(Layer(name, layer.nodes, turn, (layer.inputs[slot],), ()))
        inputs = (*layer.inputs[:slot], ValueRef(name, 0), *layer.inputs[slot + 1 :])
        layers.append(replace(layer, task=product, inputs=inputs))
    return replace(graph, layers=tuple(layers))


def _divided(task: Task) -> tuple[int, Task, Task] | None:
    """The transposed activation, its transpose, and the rest of a product; None if it begins with no transpose."""
    if task.kind is not LayerKind.CONTRACTION or (task.weights and not is_by_weight(task)):
        return None
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(task.body)
        function = module.body.operations[0].operation
        arguments = list(body_of(function).arguments)[: len(task.inputs)]
        for slot, argument in enumerate(arguments):
            turned = _turned_source(argument)
            if turned is None or not (task.weights or _joins_rows(*turned)):
                continue
            transpose, source = turned
            turn = transpose_task(_order(transpose), task.inputs[slot], TensorType.parse(str(source.type)))
            return slot, turn, _rest(task, function, transpose, slot)
    return None


def _turned_source(argument: ir.Value) -> tuple[ir.Operation, ir.Value] | None:
    """The transpose that alone reads an argument, perhaps after dimensions were joined, and what it transposes."""
    users = [use.owner.operation for use in argument.uses]
    if len(users) == 1 and users[0].name == "tensor.collapse_shape":
        argument = users[0].results[0]
        users = [use.owner.operation for use in argument.uses]
    is_turned = len(users) == 1 and users[0].name == "linalg.transpose"
    return (users[0], argument) if is_turned else None


def _order(transpose: ir.Operation) -> list[int]:
    return [int(axis) for axis in ir.DenseI64ArrayAttr(transpose.attributes["permutation"])]


def _joins_rows(transpose: ir.Operation, source: ir.Value) -> bool:
    """Whether heads and rows of a transposed activation become the rows of a product, which are at no constant distance
    in what it transposes."""
    users = [use.owner.operation for use in transpose.results[0].uses]
    if len(users) != 1 or users[0].name != "tensor.collapse_shape":
        return False
    sizes = TensorType.parse(str(source.type)).shape
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    for group in users[0].attributes["reassociation"]:
        axes = [int(ir.IntegerAttr(number).value) for number in ir.ArrayAttr(group)]
        if len(sizes) != _RANK or axes != [_RANK - 3, _RANK - 2]:
            continue
        outer, inner = (_order(transpose)[axis] for axis in axes)
        return 1 not in (sizes[outer], sizes[inner]) and steps[outer] != steps[inner] * sizes[inner]
    return False


def transpose_task(order: Sequence[int], source: TensorType, joined: TensorType | None = None) -> Task:
    """A task that transposes a tensor: dimension ``order[0]`` comes first.

    Args:
        order: of the dimensions.
        source: the tensor.
        joined: the same elements with adjacent dimensions joined, which are transposed; None for the tensor itself.
    """
    first, name = "", "%arg0"
    kind = joined or source
    if kind != source:
        groups, name = _joining(source.shape, kind.shape), "%joined"
        first = f"  %joined = tensor.collapse_shape %arg0 {groups} : {source} into {kind}\n"
    result = TensorType(tuple(kind.shape[axis] for axis in order), kind.dtype)
    text = f"""util.func public @layer(%arg0: {source}) -> {result} {{
{first}  %empty = tensor.empty() : {result}
  %turned = linalg.transpose ins({name} : {kind}) outs(%empty : {result}) permutation = {[*order]}
  util.return %turned : {result}
}}"""
    return task_of(LayerKind.FIXED, text, (source,), (), (result,))


def _joining(sizes: Sequence[int], joined: Sequence[int]) -> list[list[int]]:
    """Which adjacent dimensions are joined."""
    groups, axis = list[list[int]](), 0
    for size in joined:
        group, count = [axis], sizes[axis]
        axis += 1
        while count < size:
            group.append(axis)
            count, axis = count * sizes[axis], axis + 1
        groups.append(group)
    groups[-1] += range(axis, len(sizes))
    return groups


def _rest(task: Task, function: ir.Operation, transpose: ir.Operation, slot: int) -> Task:
    """The task whose activation ``slot`` is what a transpose of it was."""
    result, empty = transpose.results[0], transpose.operands[1]
    argument = list(body_of(function).arguments)[slot]
    turned = TensorType.parse(str(result.type))
    source = transpose.operands[0]
    argument.set_type(result.type)
    result.replace_all_uses_with(argument)
    transpose.erase()
    if source != argument:
        source.owner.erase()
    if not list(empty.uses):
        empty.owner.erase()
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    taken = [argument.type for argument in body_of(function).arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(taken, kind.results))
    body = str(function.get_asm(use_local_scope=True))
    differences = () if task.key == task_key(task.body) else (task.key,)
    inputs = (*task.inputs[:slot], turned, *task.inputs[slot + 1 :])
    return replace(task, key=task_key(body, *differences), body=body, inputs=inputs)

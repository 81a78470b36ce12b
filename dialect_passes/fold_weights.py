"""Compute values that depend on weights alone at compile time.

Transposed, reshaped or dequantised weights become new weights, so that no routine computes them at run time. Values
that are much larger than their weights, such as a bias broadcast over an image, are not folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import (
    body_of,
    defining_op,
    entry_function,
    is_static_tensor,
    remap,
    source,
    used_values,
)
from sartor.dialect_passes.constants import constant_ops, dense_array, is_weight, weight_leaves

Evaluate = Callable[[str, Sequence[np.ndarray], Sequence[TensorType]], Sequence[np.ndarray]]

# The growth that padding and wider element types may cause; small values, such as tables of indices, may grow more.
_GROWTH = 2
_SLACK_BYTES = 4096
# Values of at most this size are always folded, even if elements are repeated; but not what is repeated for each batch,
# which would be a layer's code where batches are many and a weight where they are few.
_TINY_BYTES = 256
_REPEATING = "linalg.broadcast"
_TRANSPOSE = "linalg.transpose"
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
_RETURNING = ("hal.tensor.barrier", "hal.tensor.export")
_FREE = frozenset({"tensor.empty", "arith.constant", "linalg.fill"})


def fold_weights(module: ir.Module, weights: dict[str, np.ndarray], evaluate: Evaluate) -> None:
    """Replace computations on weights in ``module`` by new weights, which are added to ``weights``.

    Args:
        module: linalg on tensors, changed in place.
        weights: parameter name to array, extended in place.
        evaluate: runs a module with one function ``@fold`` on arrays, given the types of its results.
    """
    function = entry_function(module)
    with module.context, ir.Location.unknown(module.context):
        _name_dense_constants(module, function, weights)
        known = constant_ops(function)
        targets = [*_targets(function, known), *_repeated_outputs(function, known)]
        if targets:
            _replace(module, function, targets, weights, evaluate)


def _name_dense_constants(module: ir.Module, function: ir.Operation, weights: dict[str, np.ndarray]) -> None:
    """Turn each dense constant into a weight with a parameter name, like an initialiser."""
    constants = [view.operation for view in body_of(function).operations if view.operation.name == "arith.constant"]
    for op in filter(is_weight, constants):
        _load_instead(module, op.results[0], dense_array(op), weights)
        op.erase()


def _targets(function: ir.Operation, known: set[ir.Operation]) -> list[ir.Value]:
    """Values to fold: outputs, and of each other chain of constant ops the last one that is not too large."""
    targets: dict[ir.Value, None] = {}
    visited: set[ir.Value] = set()
    users = [view.operation for view in body_of(function).operations if view.operation not in known]
    for op in sorted(users, key=lambda op: op.name not in _RETURNING):
        for value in used_values(op):
            _collect(value, known, targets, visited, is_output=op.name in _RETURNING)
    return list(targets)


def _repeated_outputs(function: ir.Operation, known: set[ir.Operation]) -> list[ir.Value]:
    """Outputs that are one number repeated, each as a value of its own: the number may be read by layers too."""
    repeated: list[ir.Value] = []
    for view in list(body_of(function).operations):
        if view.operation.name not in _RETURNING:
            continue
        for index, value in enumerate(view.operation.operands):
            op = defining_op(value)
            if op is not None and op in known and is_static_tensor(value) and not weight_leaves(op):
                copy = op.clone(ip=ir.InsertionPoint(view.operation))
                view.operation.operands[index] = copy.results[0]
                repeated.append(copy.results[0])
    return repeated


def _collect(
    start: ir.Value,
    known: set[ir.Operation],
    targets: dict[ir.Value, None],
    visited: set[ir.Value],
    *,
    is_output: bool,
) -> None:
    """Add what is folded for a value. An output is folded however large it is, as no layer computes it."""
    pending = [start]
    while pending:
        value = pending.pop()
        op = defining_op(value)
        if op is None or op not in known or value in visited or op.name in _FREE or is_weight(op):
            continue
        visited.add(value)
        leaves = [_type(leaf.results[0]) for leaf in weight_leaves(op)]
        grows = _grows(_type(value), leaves, may_be_tiny=op.name != _REPEATING) if is_static_tensor(value) else True
        if leaves and is_static_tensor(value) and ((is_output and value is start) or not grows):
            targets.setdefault(value)
        else:
            pending.extend(reversed(used_values(op)))


def _grows(result: TensorType, leaves: Sequence[TensorType], *, may_be_tiny: bool) -> bool:
    """Whether a value takes much more memory than the weights that it is computed from, or repeats their elements."""
    if may_be_tiny and result.bytes <= _TINY_BYTES:
        return False
    budget = _GROWTH * sum(leaf.bytes for leaf in leaves) + _SLACK_BYTES
    return result.bytes > budget or result.elements > _GROWTH * sum(leaf.elements for leaf in leaves)


def _type(value: ir.Value) -> TensorType:
    return TensorType.parse(str(value.type))


def _replace(
    module: ir.Module,
    function: ir.Operation,
    targets: list[ir.Value],
    weights: dict[str, np.ndarray],
    evaluate: Evaluate,
) -> None:
    arrays = {target: moved for target in targets if (moved := _moved(target, weights)) is not None}
    computed = [target for target in targets if target not in arrays]
    if computed:
        leaves = list(dict.fromkeys(leaf for target in computed for leaf in weight_leaves(source(target))))
        text = _fold_module(function, computed, leaves)
        arrays_computed = evaluate(
            text, [weights[_parameter(leaf)] for leaf in leaves], [_type(value) for value in computed]
        )
        arrays |= zip(computed, arrays_computed, strict=True)
    for target in targets:
        _load_instead(module, target, arrays[target], weights)


def _moved(value: ir.Value, weights: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """A weight that is only transposed or reshaped, as a view, which needs no compiler; None for other values."""
    op = source(value)
    if is_weight(op):
        return weights[_parameter(op)].view(_type(value).numpy_dtype)
    if op.name not in (_TRANSPOSE, *_RESHAPES):
        return None
    array = _moved(op.operands[0], weights)
    if array is None or op.name == _TRANSPOSE:
        return array if array is None else array.transpose(list(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
    return array.reshape(_type(value).shape)


def _parameter(load: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(load.attributes["global"]).value)


def _fold_module(function: ir.Operation, targets: list[ir.Value], leaves: list[ir.Operation]) -> str:
    """A module whose ``@fold`` maps the leaves to the targets."""
    arguments = ", ".join(f"%arg{index}: {leaf.results[0].type}" for index, leaf in enumerate(leaves))
    results = ", ".join(str(target.type) for target in targets)
    shell = ir.Module.parse(f"util.func public @fold({arguments}) -> ({results}) {{ util.unreachable }}")
    block = body_of(shell.body.operations[0].operation)
    mapping: dict[ir.Value, ir.Value] = dict(zip((leaf.results[0] for leaf in leaves), block.arguments, strict=True))
    needed = {op for target in targets for op in _chain(source(target))}.difference(leaves)
    terminator = block.operations[0]
    for view in body_of(function).operations:
        op = view.operation
        if op in needed:
            clone = op.clone(ip=ir.InsertionPoint(terminator))
            remap(clone, mapping)
            mapping.update(zip(op.results, clone.results, strict=True))
    ir.Operation.create(
        "util.return", operands=[mapping[target] for target in targets], ip=ir.InsertionPoint(terminator)
    )
    terminator.erase()
    return str(shell)


def _chain(op: ir.Operation) -> set[ir.Operation]:
    """An op and all that it depends on."""
    chain: set[ir.Operation] = set()
    pending = [op]
    while pending:
        current = pending.pop()
        if current not in chain:
            chain.add(current)
            pending.extend(source(value) for value in used_values(current))
    return chain


def _load_instead(module: ir.Module, value: ir.Value, array: np.ndarray, weights: dict[str, np.ndarray]) -> None:
    """Add ``array`` as a new weight, and replace ``value`` by a load of it."""
    name = f"c{len(weights)}"
    weights[name] = array
    declaration = f'util.global private @{name} = #stream.parameter.named<"model"::"{name}"> : {value.type}'
    ir.InsertionPoint.at_block_begin(module.body).insert(ir.Operation.parse(declaration))
    load = ir.Operation.create(
        "util.global.load",
        results=[value.type],
        attributes={"global": ir.FlatSymbolRefAttr.get(name)},
        ip=ir.InsertionPoint(source(value)),
    )
    value.replace_all_uses_with(load.results[0])

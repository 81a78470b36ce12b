"""Values of the network function that depend on constants and weights alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import Reads, body_of, defining_op, nested, source, used_values

_IMPURE = ("hal.", "util.return", "util.call")


def constant_ops(function: ir.Operation, reads: Reads = used_values) -> set[ir.Operation]:
    """Ops that depend on constants and weights alone; they are cloned into each layer that uses them."""
    known: set[ir.Operation] = set()
    values: set[ir.Value] = set()
    for view in body_of(function).operations:
        op = view.operation
        if op.name.startswith(_IMPURE) or not all(value in values for value in reads(op)):
            continue
        known.add(op)
        values.update(op.results)
    return known


def scalar_ops(function: ir.Operation) -> set[ir.Operation]:
    """Ops that compute scalars, such as a pad's value; layers exchange tensors only, so these are cloned as well."""
    body = [view.operation for view in body_of(function).operations]
    return {
        op
        for op in body
        if op.results
        and not op.name.startswith(_IMPURE)
        and not any(isinstance(value.type, ir.ShapedType) for value in op.results)
    }


def weight_leaves(op: ir.Operation) -> list[ir.Operation]:
    """Loads and dense constants that a constant op is computed from, each once, in order."""
    leaves: dict[ir.Operation, None] = {}
    seen: set[ir.Operation] = set()
    pending = [op]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if is_weight(current):
            leaves.setdefault(current)
        pending.extend(source(value) for value in reversed(used_values(current)))
    return list(leaves)


def is_weight(op: ir.Operation) -> bool:
    """Whether an op loads a parameter, or is a constant whose elements differ."""
    return op.name == "util.global.load" or (op.name == "arith.constant" and _is_dense(op.attributes["value"]))


def _is_dense(attribute: ir.Attribute) -> bool:
    return isinstance(attribute, ir.DenseElementsAttr) and not attribute.is_splat and len(attribute) > 1


def dense_array(op: ir.Operation) -> np.ndarray:
    """The elements of a dense ``arith.constant``."""
    attribute = op.attributes["value"]
    shape = ir.RankedTensorType(op.results[0].type).shape
    return np.array(attribute).reshape(shape)


def users(values: Iterable[ir.Value]) -> list[ir.Operation]:
    """Ops that use any of ``values``, as operands or inside a region."""
    return [use.owner.operation for value in values for use in value.uses]


def fold_narrowed(module: ir.Module) -> None:
    """Round constants that the importer narrows, such as the lowest f32 that it pads an f16 MaxPool with.

    MLIR does not, where digits are lost. IREE 3.13 then moves the operation out of the function, and refuses it there:
    "failed to legalize operation 'util.initializer'".
    """
    with module.context, ir.Location.unknown(module.context):
        for op in list(nested(module.operation)):
            constant = defining_op(op.operands[0]) if op.name == "arith.truncf" else None
            if constant is None or constant.name != "arith.constant" or isinstance(op.results[0].type, ir.ShapedType):
                continue
            kind = op.results[0].type
            value = ir.FloatAttr.get(kind, ir.FloatAttr(constant.attributes["value"]).value)
            made = ir.Operation.create("arith.constant", [kind], attributes={"value": value}, ip=ir.InsertionPoint(op))
            op.results[0].replace_all_uses_with(made.results[0])
            op.erase()

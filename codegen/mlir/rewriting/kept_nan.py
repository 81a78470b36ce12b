"""Lets bounds keep NaN, as ONNX Runtime's Clip does: IREE's importer writes comparisons that hold for NaN.

On x86 either comparison becomes one instruction with its select, a maximum or minimum by another order of operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.codegen.mlir.operations import defining_op, nested

_ORDERED = {
    int(arith.CmpFPredicate.ULT): int(arith.CmpFPredicate.OLT),
    int(arith.CmpFPredicate.UGT): int(arith.CmpFPredicate.OGT),
}
# Of NaN they have no defined result; what is read at such an index may lie outside a tensor.
_TO_INTEGERS = ("arith.fptosi", "arith.fptoui")


def keep_nan(module: ir.Module) -> None:
    """Change each comparison by which a number is bounded, in place, unless an integer is computed from the number.

    Args:
        module: whole, so that every use of a number is seen.
    """
    ops = list(nested(module.operation))
    rounded = _rounded(ops)
    for op in ops:
        if op.name != "arith.cmpf":
            continue
        predicate = ir.IntegerAttr(op.attributes["predicate"])
        ordered = _ORDERED.get(predicate.value)
        users = _users(op)
        if ordered is not None and users and all(_bounds(user, op) and user not in rounded for user in users):
            op.attributes["predicate"] = ir.IntegerAttr.get(predicate.type, ordered)


def _users(op: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for result in op.results for use in result.uses]


def _bounds(select: ir.Operation, compared: ir.Operation) -> bool:
    """Whether a select replaces the number by the bound that it was compared with."""
    number, bound = compared.operands
    return select.name == "arith.select" and [*select.operands][1:] == [bound, number]


def _rounded(ops: Iterable[ir.Operation]) -> set[ir.Operation]:
    """Operations whose numbers reach a conversion to integers, in whatever way, and these conversions."""
    pending = [op for op in ops if op.name in _TO_INTEGERS]
    rounded = set(pending)
    while pending:
        for value in _before(pending.pop()):
            if value not in rounded:
                rounded.add(value)
                pending.append(value)
    return rounded


def _before(op: ir.Operation) -> Iterator[ir.Operation]:
    """Operations that compute what an operation reads, or what its regions return."""
    for value in op.operands:
        if not _may_be_nan(value):
            continue
        definition = defining_op(value)
        # An argument of a region stands for an operand of the operation around it, that of a function for an input.
        around = definition if definition is not None else value.owner.owner.operation
        if not around.name.endswith(".func"):
            yield around
    for region in op.regions:
        for block in region.blocks:
            yield [*block.operations][-1].operation


def _may_be_nan(value: ir.Value) -> bool:
    kind = ir.ShapedType(value.type).element_type if isinstance(value.type, ir.ShapedType) else value.type
    return not isinstance(kind, (ir.IntegerType, ir.IndexType))

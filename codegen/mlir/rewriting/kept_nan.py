"""Lets bounds keep NaN, as ONNX Runtime's Clip does: IREE's importer writes comparisons that hold for NaN.

On x86 either comparison becomes one instruction with its select, a maximum or minimum by another order of operands.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.codegen.mlir.operations import nested

_ORDERED = {
    int(arith.CmpFPredicate.ULT): int(arith.CmpFPredicate.OLT),
    int(arith.CmpFPredicate.UGT): int(arith.CmpFPredicate.OGT),
}
# Of NaN they have no defined result.
_TO_INTEGERS = ("arith.fptosi", "arith.fptoui")


def keep_nan(module: ir.Module) -> None:
    """Change each comparison by which a number is bounded, in place, unless the number becomes an integer."""
    for op in nested(module.operation):
        if op.name != "arith.cmpf":
            continue
        predicate = ir.IntegerAttr(op.attributes["predicate"])
        ordered = _ORDERED.get(predicate.value)
        users = _users(op)
        if ordered is not None and users and all(_bounds(each, op) and not _is_rounded(each) for each in users):
            op.attributes["predicate"] = ir.IntegerAttr.get(predicate.type, ordered)


def _users(op: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for result in op.results for use in result.uses]


def _bounds(select: ir.Operation, compared: ir.Operation) -> bool:
    """Whether a select replaces the number by the bound that it was compared with."""
    number, bound = compared.operands
    return select.name == "arith.select" and [*select.operands][1:] == [bound, number]


def _is_rounded(select: ir.Operation) -> bool:
    """Whether a bounded number, or what bounds it further, is converted to an integer."""
    return any(
        each.name in _TO_INTEGERS or (each.name == "arith.select" and _is_rounded(each)) for each in _users(select)
    )

"""Dispatches that are formed before IREE forms its own."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import remap


def enclose(ops: Sequence[ir.Operation], result: ir.Value) -> None:
    """Move ops to a dispatch region whose result replaces theirs."""
    last = ops[-1]
    region = ir.Operation.create(
        "flow.dispatch.region",
        results=[result.type],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
        regions=2,
        ip=ir.InsertionPoint.after(last),
    )
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    block = region.regions[0].blocks.append()
    point = ir.InsertionPoint(block)
    moved: dict[ir.Value, ir.Value] = {}
    for op in ops:
        clone = op.clone(ip=point)
        remap(clone, moved)
        moved.update(zip(op.results, clone.results, strict=True))
    ir.Operation.create("flow.return", operands=[moved[result]], ip=point)
    for owner, number in uses:
        owner.operands[number] = region.results[0]
    for op in reversed(ops):
        op.erase()

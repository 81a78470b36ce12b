"""Dispatch regions with a lowering configuration of ours."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.iree_compiler import ir
from sartor.codegen.operations import body_of, used_values

_INSIDE = frozenset({"linalg.generic", "linalg.fill", "tensor.empty"})


@dataclass(frozen=True)
class DispatchRegion:
    """Tile sizes per loop of the root; 0 leaves a loop alone.

    Attributes:
        distribution: part of the result computed by one workgroup.
        parallel: register tile, over the parallel loops.
        reduction: tile of the reduction loops.
        pipeline: name of IREE's CPU pipeline.
    """

    distribution: tuple[int, ...]
    parallel: tuple[int, ...]
    reduction: tuple[int, ...]
    pipeline: str

    def wrap(self, function: ir.Operation, root: ir.Operation) -> None:
        """Move ``root``, its initial value and its followers into a region, and configure every op in it."""
        with function.context, ir.Location.unknown(function.context):
            members = _members(function, root)
            result = members[-1].results[0]
            region = ir.Operation.create(
                "flow.dispatch.region",
                results=[result.type],
                regions=2,
                attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
                ip=ir.InsertionPoint(list(body_of(function).operations)[-1]),
            )
            result.replace_all_uses_with(region.results[0])
            block = region.regions[0].blocks.append()
            terminator = ir.Operation.create("flow.return", operands=[result], ip=ir.InsertionPoint(block))
            for op in members:
                op.move_before(terminator)
                self._configure(op, root)

    def _configure(self, op: ir.Operation, root: ir.Operation) -> None:
        if op == root:
            op.attributes["compilation_info"] = ir.Attribute.parse(self._root_text())
        elif op.name != "tensor.empty":
            rank = len(ir.RankedTensorType(op.results[0].type).shape)
            tile = list(self.parallel[-rank:])
            op.attributes["lowering_config"] = ir.Attribute.parse(
                f"#iree_cpu.lowering_config<vector_common_parallel = {tile}>"
            )

    def _root_text(self) -> str:
        parallel = list(self.parallel) + [0] * (len(self.distribution) - len(self.parallel))
        return (
            "#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<"
            f"distribution = {list(self.distribution)}, vector_common_parallel = {parallel}, "
            f"vector_reduction = {list(self.reduction)}>, translation_info = "
            f"#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<{self.pipeline}>>>"
        )


def _members(function: ir.Operation, root: ir.Operation) -> list[ir.Operation]:
    """The initial value of the root, the root, and all that follows it."""
    block = [view.operation for view in body_of(function).operations]
    members = [op for op in block if op.name in _INSIDE and _reaches(op, root)]
    values = {result for op in members for result in op.results}
    for op in block[block.index(root) + 1 : -1]:
        if any(value in values for value in used_values(op)) or op.name in _INSIDE:
            members.append(op)
            values.update(op.results)
    return [op for op in block if op in members]


def _reaches(op: ir.Operation, root: ir.Operation) -> bool:
    """Whether ``op`` is the root or computes only the value it accumulates into."""
    if op == root:
        return True
    users = [use.owner.operation for result in op.results for use in result.uses]
    return bool(users) and all(_initialises(op, user, root) or _reaches(user, root) for user in users)


def _initialises(op: ir.Operation, user: ir.Operation, root: ir.Operation) -> bool:
    return user == root and root.operands[len(root.operands) - 1] in list(op.results)

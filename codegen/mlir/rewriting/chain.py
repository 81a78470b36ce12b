"""A layer as a chain: initial value, root, and the elementwise ops that follow the root."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps, is_elementwise, used_values


@dataclass(frozen=True)
class Chain:
    """Ops that compute one tensor of the shape of the root's result.

    Attributes:
        initial: the op whose result the root adds to; None if there is none.
        root: a reduction, or another op that precedes the elementwise ops.
        followers: elementwise ops after the root; only the result of the last op is used outside the chain.
    """

    initial: ir.Operation | None
    root: ir.Operation
    followers: tuple[ir.Operation, ...]

    @property
    def ops(self) -> tuple[ir.Operation, ...]:
        """All ops, in order."""
        first = () if self.initial is None else (self.initial,)
        return (*first, self.root, *self.followers)

    @property
    def result(self) -> ir.Value:
        """The tensor that the chain computes."""
        return self.ops[-1].results[0]


def root_of(function: ir.Operation) -> ir.Operation | None:
    """The single reduction of a layer; None if there is none, or several."""
    candidates = [view.operation for view in body_of(function).operations if _is_reduction(view.operation)]
    return candidates[0] if len(candidates) == 1 else None


def _is_reduction(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and "reduction" in str(op.attributes["iterator_types"])


def chain_of(function: ir.Operation, root: ir.Operation) -> Chain:
    """The chain around ``root``; ops on tensors of another shape stay outside.

    Raises:
        RejectionError: if the value that the root adds to is no broadcast.
    """
    initial = defining_op(root.operands[len(root.operands) - 1])
    if initial is None or not is_elementwise(initial):
        raise RejectionError("the initial value of the root is not a broadcast")
    return Chain(initial, root, followers_of(function, root))


def followers_of(function: ir.Operation, root: ir.Operation) -> tuple[ir.Operation, ...]:
    """The longest run of elementwise ops after ``root`` such that only the last one's result is used outside."""
    block = [view.operation for view in body_of(function).operations]
    members, length = [root], 1
    outside: set[ir.Operation] = set()
    for op in block[block.index(root) + 1 : -1]:
        producers = {defining_op(value) for value in used_values(op)}
        if producers & outside or (producers & set(members) and not _extends(op, root, members)):
            outside.add(op)
        elif producers & set(members):
            members.append(op)
            length = len(members) if _closed(members) else length
    return tuple(members[1:length])


def _extends(op: ir.Operation, root: ir.Operation, members: list[ir.Operation]) -> bool:
    """Whether an op is elementwise over results of ``members``, without permuting elements."""
    if not is_elementwise(op) or _shape(op) != _shape(root):
        return False
    maps, inside = indexing_maps(op), set(members)
    read = zip(list(op.operands)[: len(maps) - 1], maps, strict=False)
    return all(map_of_operand == maps[-1] for value, map_of_operand in read if defining_op(value) in inside)


def _shape(op: ir.Operation) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(op.results[0].type).shape)


def _closed(members: list[ir.Operation]) -> bool:
    """Whether only the last member is used by others."""
    return all(use.owner.operation in members for member in members[:-1] for use in member.results[0].uses)

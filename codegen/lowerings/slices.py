"""The slice of each operand that one workgroup needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Slice:
    """A slice of a tensor with static sizes, one entry per dimension.

    Attributes:
        offsets: the result's dimension that moves the slice, and the distance per workgroup; None if it does not move.
        sizes: extents.
    """

    offsets: tuple[tuple[int, int] | None, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class LoopTiles:
    """Partition of an op's loops over workgroups.

    Attributes:
        extents: iterations of each loop within one workgroup.
        moving: loops that workgroups partition; a loop has the number of its dimension of the result.
    """

    extents: tuple[int, ...]
    moving: frozenset[int]

    def slice_of(self, expressions: Sequence[ir.AffineExpr]) -> Slice:
        """The slice of an operand that is indexed by ``expressions``.

        Raises:
            RejectionError: if an index is no sum of multiples of loops, or depends on two loops that workgroups
                partition.
        """
        offsets: list[tuple[int, int] | None] = []
        sizes: list[int] = []
        for expression in expressions:
            factors = linear_form(expression)
            moving = [(loop, factor * self.extents[loop]) for loop, factor in factors.items() if loop in self.moving]
            if len(moving) > 1:
                raise RejectionError("an operand is indexed by two distributed loops at once")
            offsets.append(moving[0] if moving else None)
            sizes.append(1 + sum(factor * (self.extents[loop] - 1) for loop, factor in factors.items()))
        return Slice(tuple(offsets), tuple(sizes))


def linear_form(expression: ir.AffineExpr) -> dict[int, int]:
    """Factor of each loop in an index such as ``2 * d1 + d4``.

    Raises:
        RejectionError: if the index has another form or a constant part.
    """
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position: 1}
    if isinstance(expression, ir.AffineConstantExpr) and expression.value == 0:
        return {}
    if isinstance(expression, ir.AffineAddExpr):
        factors = linear_form(expression.lhs)
        for loop, factor in linear_form(expression.rhs).items():
            factors[loop] = factors.get(loop, 0) + factor
        return factors
    if isinstance(expression, ir.AffineMulExpr) and isinstance(expression.rhs, ir.AffineConstantExpr):
        return {loop: factor * expression.rhs.value for loop, factor in linear_form(expression.lhs).items()}
    raise RejectionError(f"an operand is indexed by {expression}")

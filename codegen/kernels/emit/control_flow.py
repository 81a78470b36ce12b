"""Loops and branches, written out where it is known already which way they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index, IndexArithmetic
from sartor.codegen.mlir.iree_compiler import ir, scf

Body = Callable[[Index, list[ir.Value]], list[ir.Value]]


class ControlFlow(IndexArithmetic):
    """Writes loops that carry values, and branches."""

    def loop(self, lower: Index, upper: Index, step: int, carried: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """``for index in range(lower, upper, step)``, written out where there is at most one turn.

        Args:
            lower: first index.
            upper: end.
            step: distance of indices.
            carried: values that one turn hands to the next.
            body: writes one turn, returns the values it hands on.
        """
        if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= step:
            return body(lower, list(carried)) if lower < upper else list(carried)
        loop = scf.ForOp(self.value(lower), self.value(upper), self.value(step), list(carried))
        with ir.InsertionPoint(loop.body):
            scf.yield_(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)

    def repeat(self, lower: Index, upper: Index, step: int, body: Callable[[Index], None]) -> None:
        """``for index in range(lower, upper, step)``, nothing carried."""

        def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            body(index)
            return carried

        self.loop(lower, upper, step, [], every)

    def by_steps(self, extent: int, step: int, body: Callable[[Index, int], None]) -> None:
        """``body`` for the start and the length of each step over ``range(extent)``, of which the last may be short."""
        whole = extent - extent % step
        self.repeat(0, whole, step, lambda start: body(start, step))
        if extent > whole:
            body(whole, extent - whole)

    def when(self, condition: Condition, body: Callable[[], None]) -> None:
        """Run ``body`` if a condition holds."""
        self.branch(condition, body, None)

    def branch(self, condition: Condition, then: Callable[[], None], otherwise: Callable[[], None] | None) -> None:
        """Run one of two bodies."""
        if isinstance(condition, bool):
            chosen = then if condition else otherwise
            if chosen is not None:
                chosen()
            return
        branch = scf.IfOp(condition, has_else=otherwise is not None)
        with ir.InsertionPoint(branch.then_block):
            then()
            scf.yield_([])
        if otherwise is not None:
            with ir.InsertionPoint(branch.else_block):
                otherwise()
                scf.yield_([])

"""Loops and branches, folded if trip count or condition are known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index, IndexArithmetic
from sartor.codegen.mlir.iree_compiler import ir, scf

Body = Callable[[Index, list[ir.Value]], list[ir.Value]]


class ControlFlow(IndexArithmetic):
    """Emits loops that carry values, and branches."""

    def __init__(self, entry: ir.Block) -> None:
        super().__init__(entry)
        self._begun: list[ir.Operation] = []

    @property
    def depth(self) -> int:
        """How many loops and branches the next op is in."""
        return len(self._begun)

    @contextmanager
    def outside(self, depth: int) -> Iterator[None]:
        """Emit ops before what is around them, but for ``depth`` loops and branches; they must not use values of it."""
        if depth == len(self._begun):
            yield
            return
        with ir.InsertionPoint(self._begun[depth]):
            yield

    @contextmanager
    def _inside(self, op: ir.OpView, block: ir.Block) -> Iterator[None]:
        self._begun.append(op.operation)
        with ir.InsertionPoint(block):
            yield
        self._begun.pop()

    def loop(self, lower: Index, upper: Index, step: Index, carried: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """``for index in range(lower, upper, step)``, without a loop if there is at most one iteration.

        Args:
            lower: first index.
            upper: end.
            step: distance of indices.
            carried: initial values of what iterations carry.
            body: emits one iteration, given the index and the carried values; returns the new values.
        """
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int) and upper - lower <= step:
            return body(lower, list(carried)) if lower < upper else list(carried)
        loop = scf.ForOp(self.value(lower), self.value(upper), self.value(step), list(carried))
        with self._inside(loop, loop.body):
            scf.yield_(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)

    def repeat(self, lower: Index, upper: Index, step: Index, body: Callable[[Index], None]) -> None:
        """``for index in range(lower, upper, step)``, without carried values."""

        def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            body(index)
            return carried

        self.loop(lower, upper, step, [], every)

    def by_steps(self, extent: int, step: int, body: Callable[[Index, int], None]) -> None:
        """Run ``body(start, length)`` for each step over ``range(extent)``; the last step may be shorter."""
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
        with self._inside(branch, branch.then_block):
            then()
            scf.yield_([])
        if otherwise is not None:
            with self._inside(branch, branch.else_block):
                otherwise()
                scf.yield_([])

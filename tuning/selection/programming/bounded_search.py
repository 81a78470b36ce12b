"""Finds the best plan within bounds, and checks its amounts exactly, as the solver's results have tolerances."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from sartor.tuning.selection.problem.indexed import Floats
from sartor.tuning.selection.problem.limits import Amounts, Quantity, measures, within
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment
from sartor.tuning.selection.programming.formulation import Program, Row
from sartor.tuning.selection.programming.highs_solver import HighsSolver, power_of_two

RESOLUTION = 1e-9
"""Values with a smaller relative difference count as equal."""
_LARGEST_FACTOR = 1024.0
_SINGLE_CUTS = 8
"""Number of plans that are excluded one by one because they exceed a bound by less than the solver's tolerance."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan within the bounds.

    Attributes:
        plan: the best one found.
        needed: the amount of every quantity that it needs.
        bound: lower bound of all plans' objectives.
        proven: whether this plan is proven optimal.
    """

    plan: Assignment
    needed: Amounts
    bound: float
    proven: bool


@dataclass(frozen=True)
class Nothing:
    """No plan within the bounds was found: either there is none, which is ``proven``, or time was up.

    ``bound`` is a lower bound of all plans' objectives.
    """

    bound: float
    proven: bool


@dataclass(frozen=True)
class _Budget:
    """The row that bounds a quantity. If all amounts are multiples of ``step``, the row's bound is half a step above,
    far from any plan; ``step`` is 0 if there is no such number.
    """

    row: int
    scale: float
    step: float

    def upper(self, bound: float) -> float:
        if self.step and math.isfinite(bound):
            bound = math.floor(bound / self.step) * self.step + self.step / 2
        return bound * self.scale


class BoundedSearch:
    """Searches among the plans of one problem, with changing bounds."""

    def __init__(
        self, problem: Problem, quantities: Collection[Quantity], keep: int = 1, program: Program | None = None
    ) -> None:
        """Build the program once for all searches.

        Args:
            problem: what to search.
            quantities: all quantities that will be minimised or bounded.
            keep: number of plans that may be asked for which differ only in choices of equal schemas.
            program: that of the problem, if it has columns of the caller's own.
        """
        self.problem = problem
        self.program = program or Program(problem, quantities, keep)
        self._solver = HighsSolver(self.program.binary, self.program.rows)
        self._budgets = {quantity: self._budget(quantity) for quantity in quantities}

    def least(self, quantity: Quantity, bounds: Amounts, deadline: float = math.inf) -> Found | Nothing:
        """The plan within the bounds that needs the least of a quantity."""
        return self.minimise(self.program.vector(quantity), bounds, deadline)

    def least_then(
        self, one: Quantity, other: Quantity, bounds: Amounts, deadline: float = math.inf
    ) -> Found | Nothing:
        """The plan within the bounds that needs the least of ``one``, and of those the least of ``other``.

        The result's bound is that of ``one``.
        """
        best = self.least(one, bounds, deadline)
        if isinstance(best, Nothing):
            return best
        least = best.needed[one] + RESOLUTION * abs(best.needed[one])
        better = self.least(other, {**bounds, one: min(least, bounds.get(one, math.inf))}, deadline)
        if isinstance(better, Nothing):
            return replace(best, proven=False)
        return Found(better.plan, better.needed, best.bound, best.proven and better.proven)

    def minimise(self, target: Floats, bounds: Amounts, deadline: float = math.inf) -> Found | Nothing:
        """The best plan within the bounds.

        A returned plan never exceeds a bound. Plans that need exactly a bound in bytes are always found; plans at a
        bound on the error up to the solver's tolerance, about 1e-10 of the bound.

        Args:
            target: coefficient of each column in the objective.
            bounds: the largest amount of each quantity.
            deadline: time at which to stop, by ``perf_counter``.
        """
        for quantity, budget in self._budgets.items():
            self._solver.bound_row(budget.row, budget.upper(bounds.get(quantity, math.inf)))
        cuts: list[int] = []
        while isinstance(solution := self._solve(target, deadline), Found) and not within(solution.needed, bounds):
            cuts.append(self.exclude(solution.plan))
            if len(cuts) > _SINGLE_CUTS:
                self._tighten(solution.needed, bounds, len(cuts))
        for row in cuts:
            self._solver.bound_row(row, math.inf)
        return solution

    def _solve(self, target: Floats, deadline: float) -> Found | Nothing:
        answer = self._solver.minimise(target, deadline - perf_counter())
        if answer.values is None:
            return Nothing(answer.bound, answer.final)
        plan = self.program.net.plan(answer.values.tolist())
        return Found(plan, measures(self.problem, plan), answer.bound, answer.final)

    def exclude(self, plan: Assignment) -> int:
        """Exclude ``plan`` from later searches; returns the row that excludes it."""
        terms = [(column, 1.0) for column in self.program.net.active(plan)]
        return self.add_row(Row(terms, -math.inf, len(terms) - 1))

    def add_row(self, row: Row) -> int:
        """Add a constraint on all later searches; returns the row's number."""
        return self._solver.add_row(row)

    def _tighten(self, needed: Amounts, bounds: Amounts, times: int) -> None:
        """Lower the rows' bounds by a margin for the solver's tolerance, which grows with ``times``."""
        for quantity, bound in bounds.items():
            if (excess := needed[quantity] - bound) > 0:
                budget = self._budgets[quantity]
                self._solver.bound_row(budget.row, (bound - excess * 2.0 ** (times - _SINGLE_CUTS)) * budget.scale)

    def _budget(self, quantity: Quantity) -> _Budget:
        vector = self.program.vector(quantity)
        scale = power_of_two(vector, _LARGEST_FACTOR)
        used = np.flatnonzero(vector)
        terms = list(zip(used.tolist(), (vector[used] * scale).tolist(), strict=True))
        sizes = self.program.sizes if quantity is Quantity.MEMORY else []
        return _Budget(self._solver.add_row(Row(terms, -math.inf, math.inf)), scale, _step([*vector[used], *sizes]))


def _step(values: list[float]) -> float:
    """The greatest common divisor of all values, 0 if they are not all integers."""
    if not all(float(value).is_integer() for value in values):
        return 0.0
    return float(math.gcd(*(int(value) for value in values)))

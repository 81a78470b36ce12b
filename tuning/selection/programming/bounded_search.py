"""The best plan under bounds, its measures checked exactly: the solver alone is right up to its tolerances."""

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
"""Values that differ by less, relatively, count as the same."""
_LARGEST_FACTOR = 1024.0
_SINGLE_CUTS = 8
"""So many plans that miss a bound by less than the solver's tolerance are excluded one by one."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan within the bounds.

    Attributes:
        plan: the best one found.
        needed: how much it needs of every quantity.
        bound: no plan has a lower objective.
        proven: nor has any a lower one than this.
    """

    plan: Assignment
    needed: Amounts
    bound: float
    proven: bool


@dataclass(frozen=True)
class Nothing:
    """No plan within the bounds was found: there is none, if that is ``proven``, or time was up.

    ``bound`` is what no plan is below.
    """

    bound: float
    proven: bool


@dataclass(frozen=True)
class _Budget:
    """The row that bounds a quantity. What is a multiple of ``step`` is bounded half a step above the bound, far
    from any plan; ``step`` is 0 where there is none."""

    row: int
    scale: float
    step: float

    def upper(self, bound: float) -> float:
        if self.step and math.isfinite(bound):
            bound = math.floor(bound / self.step) * self.step + self.step / 2
        return bound * self.scale


class BoundedSearch:
    """Searches over the plans of one problem, under one bound after the other."""

    def __init__(self, problem: Problem, quantities: Collection[Quantity], keep: int = 1) -> None:
        """Build the program once for all searches.

        Args:
            problem: what to search.
            quantities: all that will be minimised or bounded.
            keep: how many plans that differ only in choices of equal schemas may be asked for.
        """
        self.problem = problem
        self.program = Program(problem, quantities, keep)
        self._solver = HighsSolver(self.program.binary, self.program.rows)
        self._budgets = {quantity: self._budget(quantity) for quantity in quantities}

    def least(self, quantity: Quantity, bounds: Amounts, deadline: float = math.inf) -> Found | Nothing:
        """The plan that needs least of a quantity within the bounds."""
        return self.minimise(self.program.vector(quantity), bounds, deadline)

    def least_then(
        self, one: Quantity, other: Quantity, bounds: Amounts, deadline: float = math.inf
    ) -> Found | Nothing:
        """The plan that needs least of ``one`` within the bounds, and of those the one that needs least of ``other``.

        The bound of what is found is on ``one``.
        """
        found = self.least(one, bounds, deadline)
        if isinstance(found, Nothing):
            return found
        least = found.needed[one] + RESOLUTION * abs(found.needed[one])
        better = self.least(other, {**bounds, one: min(least, bounds.get(one, math.inf))}, deadline)
        if isinstance(better, Nothing):
            return replace(found, proven=False)
        return Found(better.plan, better.needed, found.bound, found.proven and better.proven)

    def minimise(self, target: Floats, bounds: Amounts, deadline: float = math.inf) -> Found | Nothing:
        """The best plan within the bounds.

        A plan that is kept never exceeds a bound. Plans that need exactly a bound of whole bytes are always found,
        those of an error up to the solver's tolerance, some 1e-10 of the budget.

        Args:
            target: what each column adds to the objective.
            bounds: the most of each quantity that the plan may need.
            deadline: when to stop, by ``perf_counter``.
        """
        for quantity, budget in self._budgets.items():
            self._solver.bound_row(budget.row, budget.upper(bounds.get(quantity, math.inf)))
        cuts: list[int] = []
        while isinstance(found := self._solve(target, deadline), Found) and not within(found.needed, bounds):
            cuts.append(self.exclude(found.plan))
            if len(cuts) > _SINGLE_CUTS:
                self._tighten(found.needed, bounds, len(cuts))
        for row in cuts:
            self._solver.bound_row(row, math.inf)
        return found

    def _solve(self, target: Floats, deadline: float) -> Found | Nothing:
        answer = self._solver.minimise(target, deadline - perf_counter())
        if answer.values is None:
            return Nothing(answer.bound, answer.final)
        plan = self.program.net.plan(answer.values.tolist())
        return Found(plan, measures(self.problem, plan), answer.bound, answer.final)

    def exclude(self, plan: Assignment) -> int:
        """Never find ``plan`` again; returns the row that says so."""
        terms = [(column, 1.0) for column in self.program.net.active(plan)]
        return self._solver.add_row(Row(terms, -math.inf, len(terms) - 1))

    def _tighten(self, needed: Amounts, bounds: Amounts, times: int) -> None:
        """Leave a margin for the solver's tolerance, growing until it is enough."""
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
    """The largest number that divides all values, 0 if they are not all whole."""
    if not all(float(value).is_integer() for value in values):
        return 0.0
    return float(math.gcd(*(int(value) for value in values)))

"""Integer linear programming: exact for every graph, within limits on memory and error.

The program is in ``formulation``. HiGHS proves its optimum by branch and bound on the linear relaxation, which is
integral, or nearly, where adapts cost more than they gain. Proofs hold up to its tolerances: a plan that is better by
less than about 1e-9 of the cost may be missed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from time import perf_counter

from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity, measures, within
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection, conclude
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Found, Nothing
from sartor.tuning.selection.programming.infeasible import no_plan
from sartor.tuning.selection.programming.ties import prefer_earlier

NAME = "ilp"
_LOG = logging.getLogger(__name__)


def select(problem: Problem) -> Selection:
    """The cheapest plan.

    In it no single layer could take an earlier choice at the same cost.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return select_within(problem, UNLIMITED)


def select_within(problem: Problem, limits: Limits, seconds: float | None = None) -> Selection:
    """The cheapest plan within limits, or the best one found in time; its bound holds for plans within the limits.

    Args:
        problem: the selection problem.
        limits: limits on the plan's memory and error.
        seconds: time limit; None for none.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
    """
    return k_best(problem, 1, limits, seconds)[0]


def k_best(problem: Problem, k: int, limits: Limits = UNLIMITED, seconds: float | None = None) -> list[Selection]:
    """The ``k`` cheapest plans within limits, cheapest first; fewer if there are fewer or time is up.

    Plans differ if a layer, also one inside a chosen childnet, has another choice. Each next plan is found by excluding
    those before it (by a no-good cut each).

    Raises:
        InfeasibleError: as ``select_within``.
        ValueError: if ``k`` is less than 1.
    """
    if k < 1:
        raise ValueError("at least one plan must be asked for")
    started = perf_counter()
    search = _Search(problem, k, limits, math.inf if seconds is None else started + seconds)
    best = search.first(started)
    others = search.others(best, k - 1, started)
    _report(best, len(search.program.binary), len(search.program.rows))
    return [best, *others]


class _Search(BoundedSearch):
    """Searches the best plans within limits, one after another."""

    def __init__(self, problem: Problem, k: int, limits: Limits, deadline: float) -> None:
        super().__init__(problem, {Quantity(problem.objective.value), *limits.bounds}, keep=k)
        self._limits = limits
        self._deadline = deadline
        self._target = self.program.objective(problem.objective)

    def first(self, started: float) -> Selection:
        """The best plan; if time is up, the better of the best one found and the greedy one."""
        solution = self.minimise(self._target, self._limits.bounds, self._deadline)
        if isinstance(solution, Found) and solution.proven:
            return self._concluded(self._settled(solution.plan, ()), None, started)
        plans = [solution.plan] if isinstance(solution, Found) else []
        greedy_plan = greedy.select(self.problem).assignment
        if not solution.proven and within(measures(self.problem, greedy_plan), self._limits.bounds):
            plans.append(greedy_plan)
        if not plans:
            raise no_plan(self, self._limits, solution.proven)
        selections = [self._concluded(plan, solution.bound, started) for plan in plans]
        return min(selections, key=lambda selection: selection.cost)

    def others(self, best: Selection, count: int, started: float) -> list[Selection]:
        """The next best plans, as long as there are any and time is left."""
        plans = [best.assignment]
        while len(plans) <= count:
            self.exclude(plans[-1])
            solution = self.minimise(self._target, self._limits.bounds, self._deadline)
            if isinstance(solution, Nothing):
                break
            plans.append(self._settled(solution.plan, plans))
        others = [self._concluded(plan, best.lower_bound, started) for plan in plans[1:]]
        return sorted(others, key=lambda selection: selection.cost)

    def _settled(self, plan: Assignment, known: Sequence[Assignment]) -> Assignment:
        bounds = self._limits.bounds
        return prefer_earlier(
            self.program.net, plan, lambda other: other not in known and within(measures(self.problem, other), bounds)
        )

    def _concluded(self, plan: Assignment, bound: float | None, started: float) -> Selection:
        return conclude(self.problem, plan, bound=bound, solver=NAME, seconds=perf_counter() - started)


def _report(best: Selection, columns: int, rows: int) -> None:
    summary = f"{columns} columns, {rows} rows, {best.seconds:.3f} s"
    if best.optimal:
        _LOG.info("%s: proven optimal; %s", NAME, summary)
    else:
        _LOG.warning("%s: time is up, %g at least and %g found; %s", NAME, best.lower_bound, best.cost, summary)

"""The default selector: the cheapest exact solver, with others in a fixed order as fallbacks.

1. DPRS, if an elimination order fits into memory and time: exact, and by far the fastest.
2. The integer program: exact for every graph, but it may exceed the time limit.
3. PBQP reductions: fast for every graph.
4. DPRS with some schemas fixed to those of a good plan.

A solver runs only if those before it did not prove their plans the cheapest. The result is the best plan found with the
highest lower bound. Each fallback is logged with its reason. If the best plan without limits exceeds the limits, only
the integer program remains, because the other solvers do not support limits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, measures, within
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.selection.programming import ilp

NAME = "auto"
SECONDS = 60.0
"""Default time limit of all solvers together, in seconds."""
# For large tables. Small tables take longer per entry, but have few.
_ENTRIES_PER_SECOND = 3e7
_LOG = logging.getLogger(__name__)

_Attempt = Callable[[Problem, int, float], tuple[Sequence[Selection], str]]
"""Plans for a problem and a number of plans in a time, and why they may not be the cheapest; empty if they are."""


def select(problem: Problem) -> Selection:
    """The cheapest plan, by the first solver that proves it optimal; the result's ``solver`` names the solver.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return k_best(problem, 1)[0]


def k_best(problem: Problem, k: int, limits: Limits = UNLIMITED, seconds: float | None = SECONDS) -> list[Selection]:
    """The ``k`` cheapest plans within limits, cheapest first; fewer if there are fewer or time is up.

    Args:
        problem: the selection problem.
        k: number of plans.
        limits: limits on the plans' memory and error.
        seconds: time limit of solvers that can be stopped; None for none.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
        ValueError: if ``k`` is less than 1.
    """
    if k < 1:
        raise ValueError("at least one plan must be asked for")
    started = perf_counter()
    deadline = math.inf if seconds is None else started + seconds
    if limits.bounds:
        return _within(problem, k, limits, deadline)
    plans: list[Selection] = []
    for name, attempt in _LADDER:
        selections, doubt = attempt(problem, k, deadline - perf_counter())
        plans = _merged([*plans, *selections], k, perf_counter() - started)
        if not doubt or (k == 1 and plans and plans[0].optimal):
            break
        _LOG.warning("%s: %s gave no proof: %s", NAME, name, doubt)
    return plans


def _within(problem: Problem, k: int, limits: Limits, deadline: float) -> list[Selection]:
    """Solve without limits, which is exact if the plans are within them, and otherwise by the integer program."""
    selections, doubt = _by_dprs(problem, k, deadline - perf_counter())
    if not doubt and all(within(measures(problem, plan.assignment), limits.bounds) for plan in selections):
        return list(selections)
    left = deadline - perf_counter()
    return ilp.k_best(problem, k, limits, None if left == math.inf else max(left, 0.0))


def _by_dprs(problem: Problem, k: int, left: float) -> tuple[Sequence[Selection], str]:
    search = dprs.Search(problem, k)
    if search.entries is None:
        return [], "none of its orders fits into memory"
    seconds = search.entries / _ENTRIES_PER_SECOND
    if seconds > left:
        return [], f"its tables of {search.entries} entries would take about {seconds:.1f} s"
    solutions = search.run()
    proven = solutions.complete or (k == 1 and solutions.plans[0].optimal)
    return solutions.plans, "" if proven else "tables of a childnet or of shared conversions do not fit into memory"


def _by_ilp(problem: Problem, k: int, left: float) -> tuple[Sequence[Selection], str]:
    selections = ilp.k_best(problem, k, seconds=None if left == math.inf else left)
    return selections, "" if selections[0].optimal else "time is up"


def _by_pbqp(problem: Problem, k: int, left: float) -> tuple[Sequence[Selection], str]:
    selection = pbqp.select(problem)
    return [selection], "" if k == 1 and selection.optimal else "it had to guess"


def _by_conditioning(problem: Problem, k: int, left: float) -> tuple[Sequence[Selection], str]:
    return dprs.k_best(problem, k), "it fixed some schemas; the best plan found is taken"


_LADDER: tuple[tuple[str, _Attempt], ...] = (
    (dprs.NAME, _by_dprs),
    (ilp.NAME, _by_ilp),
    (pbqp.NAME, _by_pbqp),
    (f"conditioned {dprs.NAME}", _by_conditioning),
)


def _merged(selections: Sequence[Selection], k: int, seconds: float) -> list[Selection]:
    """The ``k`` cheapest distinct plans, each with the highest of the lower bounds."""
    distinct: list[Selection] = []
    for selection in sorted(selections, key=lambda selection: selection.cost):
        if len(distinct) < k and all(selection.assignment != other.assignment for other in distinct):
            distinct.append(selection)
    bound = max((selection.lower_bound for selection in selections), default=-math.inf)
    return [
        replace(selection, lower_bound=min(bound, distinct[0].cost), optimal=selection.cost <= bound, seconds=seconds)
        for selection in distinct
    ]

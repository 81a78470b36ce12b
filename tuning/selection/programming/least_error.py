"""Finds the plan with the least sum of squared errors, and of those the fastest."""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter

from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing
from sartor.tuning.selection.programming.ilp import NAME
from sartor.tuning.selection.programming.infeasible import no_plan


def most_exact(problem: Problem, limits: Limits = UNLIMITED, seconds: float | None = None) -> Selection:
    """The plan with the least error, and of those the fastest; ``optimal`` means both.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
    """
    started = perf_counter()
    search = BoundedSearch(problem, {Quantity.ERROR, Quantity.LATENCY, *limits.bounds})
    deadline = math.inf if seconds is None else started + seconds
    found = search.least_then(Quantity.ERROR, Quantity.LATENCY, limits.bounds, deadline)
    if isinstance(found, Nothing):
        raise no_plan(search, limits, found.proven)
    concluded = conclude(problem, found.plan, bound=None, solver=NAME, seconds=perf_counter() - started)
    return replace(concluded, optimal=found.proven)

"""The plan that needs the least memory, weights and peak together, and of those the fastest.

The peak of the activations is no sum over layers, so this is an integer program with two objectives, one after the
other.
"""

from __future__ import annotations

import math
from time import perf_counter

from sartor.errors import InfeasibleError
from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, evaluate
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing
from sartor.tuning.selection.programming.ilp import NAME
from sartor.tuning.selection.programming.infeasible import explain


def smallest(problem: Problem, limits: Limits = UNLIMITED, seconds: float | None = None) -> Selection:
    """The plan; its cost and bound are bytes of memory in all, ``optimal`` holds for memory and then time.

    Raises:
        InfeasibleError: if no plan exists, if none keeps to the limits, or if none that does was found in time.
    """
    started = perf_counter()
    search = BoundedSearch(problem, {Quantity.MEMORY, Quantity.LATENCY, *limits.bounds})
    deadline = math.inf if seconds is None else started + seconds
    found = search.least_then(Quantity.MEMORY, Quantity.LATENCY, limits.bounds, deadline)
    if isinstance(found, Nothing):
        raise no_plan(search, limits, found)
    costs = evaluate(problem, found.plan)
    if costs is None:
        raise AssertionError("the program knows which conversions exist")
    memory = found.needed[Quantity.MEMORY]
    bound = memory if found.proven else min(found.bound, memory)
    return Selection(found.plan, memory, costs, bound, found.proven, NAME, perf_counter() - started)


def no_plan(search: BoundedSearch, limits: Limits, nothing: Nothing) -> InfeasibleError:
    """Why nothing was found.

    Raises:
        InfeasibleError: if there is no plan even without limits, with the layer at which nothing is left.
    """
    greedy.select(search.problem)
    if nothing.proven:
        return explain(search, limits)
    return InfeasibleError("no plan within the limits was found in the time allowed; allow more of either")

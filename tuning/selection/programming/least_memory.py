"""Finds the plan that needs the least memory, weights and peak of activations together, and of those the fastest.

The peak of the activations is not a sum over layers, so this solves an integer program with two objectives in turn.
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
    """The plan with the least memory, and of those the fastest; ``optimal`` means both. Cost and bound are in bytes.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
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
    """The error for a search without result: which limits cannot be met, or that time was up.

    Raises:
        InfeasibleError: if no plan exists even without limits; it names a layer without possible choices.
    """
    greedy.select(search.problem)
    if nothing.proven:
        return explain(search, limits)
    return InfeasibleError("no plan within the limits was found in the time allowed; allow more of either")

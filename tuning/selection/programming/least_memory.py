"""Finds the plans that need the least memory, weights and peak of activations together, or have the least error."""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter

from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity, measures
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection, conclude, evaluate
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Found, Nothing
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
    solution = search.least_then(Quantity.ERROR, Quantity.LATENCY, limits.bounds, deadline)
    if isinstance(solution, Nothing):
        raise no_plan(search, limits, solution.proven)
    concluded = conclude(problem, solution.plan, bound=None, solver=NAME, seconds=perf_counter() - started)
    return replace(concluded, optimal=solution.proven)


def smallest(problem: Problem, limits: Limits = UNLIMITED, seconds: float | None = None) -> Selection:
    """The plan with the least memory, and of those the fastest; ``optimal`` means both. Cost and bound are in bytes.

    If none was found in time, it is the greedy one where nothing is limited.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
    """
    started = perf_counter()
    search = BoundedSearch(problem, {Quantity.MEMORY, Quantity.LATENCY, *limits.bounds})
    deadline = math.inf if seconds is None else started + seconds
    solution = search.least_then(Quantity.MEMORY, Quantity.LATENCY, limits.bounds, deadline)
    if isinstance(solution, Nothing) and (solution.proven or limits != UNLIMITED):
        raise no_plan(search, limits, solution.proven)
    if isinstance(solution, Nothing):
        plan = greedy.select(problem).assignment
        solution = Found(plan, measures(problem, plan), solution.bound, proven=False)
    costs = evaluate(problem, solution.plan)
    if costs is None:
        raise AssertionError("the program knows which conversions exist")
    memory = solution.needed[Quantity.MEMORY]
    bound = memory if solution.proven else min(solution.bound, memory)
    return Selection(solution.plan, memory, costs, bound, solution.proven, NAME, perf_counter() - started)

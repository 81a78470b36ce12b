"""Exhaustive search, the oracle in tests of the other solvers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from time import perf_counter

from sartor.errors import InfeasibleError, UsageError
from sartor.tuning.selection.problem.problem import Choice, Edge, Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection, conclude, evaluate, nothing_left

NAME = "exhaustive"
LIMIT = 200_000
"""Largest number of combinations that are tried."""

_Picked = tuple[Choice, Assignment | None]


def select(problem: Problem, limit: int = LIMIT) -> Selection:
    """The cheapest of all plans; among equals the first in choice order.

    Raises:
        UsageError: if the problem has more than ``limit`` combinations.
        InfeasibleError: if no plan exists.
    """
    return k_best(problem, 1, limit)[0]


def k_best(problem: Problem, k: int, limit: int = LIMIT) -> list[Selection]:
    """The ``k`` cheapest plans, cheapest first; fewer if there are fewer.

    Raises:
        UsageError: if the problem has more than ``limit`` combinations.
        InfeasibleError: if no plan exists.
    """
    started = perf_counter()
    count = combinations(problem)
    if count > limit:
        raise UsageError(
            f"selector '{NAME}' tries at most {limit} combinations, but there are {Decimal(count):.3g}; "
            "use 'dprs' instead"
        )
    plans = sorted(_plans(problem), key=lambda plan: _value(problem, plan))[:k]
    best, seconds = _value(problem, plans[0]), perf_counter() - started
    return [conclude(problem, plan, bound=best, solver=NAME, seconds=seconds) for plan in plans]


def combinations(problem: Problem) -> int:
    """Number of ways to pick one choice per layer, childnets included."""
    return math.prod(
        sum(1 if choice.childnet is None else combinations(choice.childnet) for choice in node.choices)
        for node in problem.nodes
    )


def _plans(problem: Problem) -> list[Assignment]:
    """All feasible plans in choice order, built layer by layer in topological order."""
    position = {node.name: index for index, node in enumerate(problem.nodes)}
    prefixes: list[tuple[_Picked, ...]] = [()]
    for node in problem.nodes:
        inbound = [(edge, position[edge.producer]) for edge in problem.edges if edge.consumer == node.name]
        picks = [pick for choice in node.choices for pick in _picks(choice)]
        prefixes = [(*prefix, pick) for prefix in prefixes for pick in picks if _fits(problem, inbound, prefix, pick)]
        if not prefixes:
            raise nothing_left(node.name)
    return [_assignment(problem, prefix) for prefix in prefixes]


def _picks(choice: Choice) -> Iterator[_Picked]:
    if choice.childnet is None:
        yield choice, None
        return
    try:
        plans = _plans(choice.childnet)
    except InfeasibleError:
        return
    for plan in plans:
        yield choice, plan


def _fits(problem: Problem, inbound: list[tuple[Edge, int]], prefix: tuple[_Picked, ...], pick: _Picked) -> bool:
    return all(
        problem.adapt(edge, prefix[producer][0].output, pick[0].inputs[edge.slot]) is not None
        for edge, producer in inbound
    )


def _assignment(problem: Problem, picked: tuple[_Picked, ...]) -> Assignment:
    named = list(zip((node.name for node in problem.nodes), picked, strict=True))
    return Assignment(
        {name: choice for name, (choice, _) in named},
        {name: inside for name, (_, inside) in named if inside is not None},
    )


def _value(problem: Problem, plan: Assignment) -> float:
    costs = evaluate(problem, plan)
    return math.inf if costs is None else costs.value(problem.objective)

"""The solvers that users can choose, and those that they are compared with."""

from __future__ import annotations

from benchmarks.selection import exhaustive, random_search
from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selector
from sartor.tuning.selection.registry import SELECTORS

COMPARED: dict[str, Selector] = {exhaustive.NAME: exhaustive.select, random_search.NAME: random_search.select}
ALL_SELECTORS = SELECTORS | COMPARED


def has_plan(problem: Problem) -> bool:
    """Whether any plan is possible, by exhaustive search."""
    try:
        exhaustive.select(problem)
    except InfeasibleError:
        return False
    return True

"""Finds the best plans for an objective and limits by a given solver."""

from __future__ import annotations

from sartor.errors import UsageError
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.selection.programming import ilp, least_memory
from sartor.tuning.selection.registry import SELECTORS

EXACT = (auto.NAME, dprs.NAME, ilp.NAME)
"""Solvers that prove their plans the best."""
WITHIN_LIMITS = (auto.NAME, ilp.NAME)
"""Solvers of plans within limits."""


def check_solver(name: str, objective: Objective, limits: Limits = UNLIMITED) -> None:
    """Check that a solver exists and supports an objective and limits.

    Raises:
        UsageError: if it does not.
    """
    if name not in SELECTORS:
        raise UsageError(f"'{name}' is no selector, choose among {', '.join(SELECTORS)}")
    if name in WITHIN_LIMITS:
        return
    kept = f"choose {' or '.join(WITHIN_LIMITS)}"
    if limits.bounds:
        raise UsageError(f"the selector '{name}' knows no limit of {', '.join(limits.bounds)}; {kept}")
    if objective is Objective.MEMORY:
        raise UsageError(f"the selector '{name}' adds costs up, which the peak of the memory is not; {kept}")


def solve(
    problem: Problem, name: str, k: int = 1, limits: Limits = UNLIMITED, seconds: float | None = auto.SECONDS
) -> list[Selection]:
    """The best plans, best first; only one if the solver cannot rank plans.

    The objective memory means all memory, including the peak of the activations; among equals the fastest plan is best.

    Args:
        problem: the selection problem.
        name: of the solver.
        k: largest number of plans.
        limits: limits on the plans' memory and error.
        seconds: time limit of solvers that can be stopped; None for none.

    Raises:
        InfeasibleError: if no plan exists, none is within the limits, or none within them was found in time.
        UsageError: if the solver does not exist, or does not support the objective or the limits.
    """
    check_solver(name, problem.objective, limits)
    if problem.objective is Objective.MEMORY:
        return [least_memory.smallest(problem, limits, seconds)]
    if name == auto.NAME:
        return auto.k_best(problem, k, limits, seconds)
    if name == ilp.NAME:
        return ilp.k_best(problem, k, limits, seconds)
    return dprs.k_best(problem, k) if name == dprs.NAME else [SELECTORS[name](problem)]

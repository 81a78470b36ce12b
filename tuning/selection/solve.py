"""The best plans for an objective and limits, by the solver that was asked for."""

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

_WITHIN_LIMITS = (auto.NAME, ilp.NAME)


def check_solver(name: str, objective: Objective, limits: Limits = UNLIMITED) -> None:
    """Make sure that a solver exists and can do what is asked.

    Raises:
        UsageError: if not.
    """
    if name not in SELECTORS:
        raise UsageError(f"'{name}' is no selector, choose among {', '.join(SELECTORS)}")
    if name in _WITHIN_LIMITS:
        return
    kept = f"choose {' or '.join(_WITHIN_LIMITS)}"
    if limits.bounds:
        raise UsageError(f"the selector '{name}' knows no limit of {', '.join(limits.bounds)}; {kept}")
    if objective is Objective.MEMORY:
        raise UsageError(f"the selector '{name}' adds costs up, which the peak of the memory is not; {kept}")


def solve(
    problem: Problem, name: str, k: int = 1, limits: Limits = UNLIMITED, seconds: float | None = auto.SECONDS
) -> list[Selection]:
    """The best plans, best first; solvers that cannot rank plans give one.

    Least memory means the whole of it, the peak of the activations included, and of equals the fastest plan.

    Args:
        problem: what to solve.
        name: of the solver.
        k: so many plans at most.
        limits: what they must keep to.
        seconds: how long solvers that can be stopped may take; None is no limit.

    Raises:
        InfeasibleError: if no plan exists, if none keeps to the limits, or if none that does was found in time.
        UsageError: as ``check_solver`` does.
    """
    check_solver(name, problem.objective, limits)
    if problem.objective is Objective.MEMORY:
        return [least_memory.smallest(problem, limits, seconds)]
    if name == auto.NAME:
        return auto.k_best(problem, k, limits, seconds)
    if name == ilp.NAME:
        return ilp.k_best(problem, k, limits, seconds)
    return dprs.k_best(problem, k) if name == dprs.NAME else [SELECTORS[name](problem)]

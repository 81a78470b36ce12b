"""How much of a plan's weights may lie in its file in a second form, for code that reads either by a size."""

from __future__ import annotations

from dataclasses import replace

from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.limits import Limits, shared_bytes
from sartor.tuning.selection.problem.problem import Problem
from sartor.tuning.selection.problem.selection import evaluate
from sartor.tuning.selection.solve import WITHIN_LIMITS, solve

# Of the bytes of weights in one form.
_REPEATED = 0.1


def bounded(problem: Problem, selector: str, limits: Limits) -> Limits:
    """The limits with one on second forms, by the best plan that has each weight in one form.

    There is none if pins leave no such plan, or the solver knows no limits.
    """
    repeats = any(choice.cost.repeated for node in problem.nodes for choice in node.choices)
    if not repeats or selector not in WITHIN_LIMITS:
        return limits
    try:
        once = solve(problem, selector, limits=replace(limits, repeated=0.0))[0].assignment
    except InfeasibleError:
        return limits
    costs = evaluate(problem, once)
    weights = shared_bytes(once) if costs is None else costs.memory + shared_bytes(once)
    return replace(limits, repeated=_REPEATED * weights)

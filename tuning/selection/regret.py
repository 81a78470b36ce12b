"""The plan with the least regret over several cases, by a solver that knows one objective.

The regret of a plan is the worst ratio of its seconds in a case to those of the best plan for that case. Weights of
the cases and plans are the two sides of a game (von Neumann, 1928): for any weights, the least weighted sum of ratios
bounds the regret of every plan from below. The weights for which that bound is greatest are found by cutting planes
(Kelley, 1960): a linear program over the plans found so far gives weights, and the best plan for these is one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from sartor.tuning.selection.programming.formulation import Row
from sartor.tuning.selection.programming.highs_solver import HighsSolver

_Plan = TypeVar("_Plan")
_ROUNDS = 16
# Relative: times are less exact.
_CLOSE = 1e-4
_SECONDS = 10.0


@dataclass(frozen=True)
class LeastRegret(Generic[_Plan]):
    """A plan, and what is known of the regret of all others.

    Attributes:
        plan: the plan.
        ratios: of its seconds to those of the best plan for each case.
        bound: no plan has a smaller regret.
        singles: the best plan for each case.
    """

    plan: _Plan
    ratios: tuple[float, ...]
    bound: float
    singles: tuple[_Plan, ...]

    @property
    def regret(self) -> float:
        """The worst ratio."""
        return max(self.ratios)


def least_regret(find: Callable[[Sequence[float]], tuple[_Plan, Sequence[float]]], cases: int) -> LeastRegret[_Plan]:
    """The plan with the least regret among those that are best for some weights of the cases.

    Args:
        find: the plan with the least sum of seconds, each case multiplied by its weight, and its seconds in each case,
            which are more than 0; weights are 1 in all.
        cases: how many there are.
    """
    plans = [find([float(one == other) for other in range(cases)]) for one in range(cases)]
    least = [seconds[case] for case, (_, seconds) in enumerate(plans)]
    singles, bound = tuple(plan for plan, _ in plans), 1.0

    def ratios(seconds: Sequence[float]) -> tuple[float, ...]:
        return tuple(own / best for own, best in zip(seconds, least, strict=True))

    for _ in range(_ROUNDS):
        weights = _hardest_weights([ratios(seconds) for _, seconds in plans])
        shares = [weight / best for weight, best in zip(weights, least, strict=True)]
        plan, seconds = find([share / sum(shares) for share in shares])
        bound = max(bound, _product(weights, ratios(seconds)))
        known = min(_product(weights, ratios(taken)) for _, taken in plans)
        plans.append((plan, seconds))
        if bound >= known * (1 - _CLOSE):
            break
    plan, seconds = min(plans, key=lambda pair: max(ratios(pair[1])))
    # Rounding apart it is below.
    return LeastRegret(plan, ratios(seconds), min(bound, max(ratios(seconds))), singles)


def _hardest_weights(ratios: Sequence[Sequence[float]]) -> list[float]:
    """Weights of the cases, 1 in all, for which the least weighted sum of a plan's ratios is greatest."""
    cases = len(ratios[0])
    rows = [Row([*enumerate(own), (cases, -1.0)], 0.0, math.inf) for own in ratios]
    rows.append(Row([(case, 1.0) for case in range(cases)], 1.0, 1.0))
    values = HighsSolver([False] * (cases + 1), rows).minimise(np.array([0.0] * cases + [-1.0]), _SECONDS).values
    if values is None:
        raise ValueError("a linear program of weights has no solution")
    positive = [max(float(weight), 0.0) for weight in values[:cases]]
    return [weight / sum(positive) for weight in positive]


def _product(ones: Sequence[float], others: Sequence[float]) -> float:
    return math.fsum(one * other for one, other in zip(ones, others, strict=True))

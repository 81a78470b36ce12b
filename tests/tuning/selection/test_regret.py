"""The plan with the least regret over several cases: the worst ratio to the best plan for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sartor.tuning.selection.regret import least_regret

Plans = Sequence[tuple[float, ...]]


def finding(plans: Plans) -> Callable[[Sequence[float]], tuple[int, tuple[float, ...]]]:
    def find(weights: Sequence[float]) -> tuple[int, tuple[float, ...]]:
        assert sum(weights) == pytest.approx(1)
        best = min(range(len(plans)), key=lambda plan: float(np.dot(weights, plans[plan])))
        return best, plans[best]

    return find


def sums(layers: Sequence[Plans]) -> Plans:
    """The seconds of each combination of the layers' choices."""
    return [tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(*layers)]


def test_a_plan_that_is_best_for_no_case_has_the_least_regret() -> None:
    # Seconds of cases differ by orders of magnitude, ratios do not.
    plans = [(1.0, 3000.0), (3.0, 1000.0), (1.5, 1500.0)]
    found = least_regret(finding(plans), 2)
    assert (found.plan, found.singles, found.ratios) == (2, (0, 1), (1.5, 1.5))
    assert found.regret == found.bound == pytest.approx(1.5)


def test_one_plan_that_is_best_for_all_has_none() -> None:
    found = least_regret(finding([(2.0, 5.0, 1.0), (1.0, 4.0, 0.5)]), 3)
    assert (found.plan, found.regret, found.bound) == (1, 1, 1)


def test_the_bound_is_below_what_any_plan_reaches() -> None:
    """Which a plan may miss that is the best for no weights: 2.1 and 2.1 beside 1, 3 and 3, 1."""
    found = least_regret(finding([(1.0, 3.0), (3.0, 1.0), (2.1, 2.1)]), 2)
    assert found.bound == pytest.approx(2)
    assert found.regret == 3


@pytest.mark.parametrize("seed", range(20))
def test_choices_of_many_layers_come_near_the_bound(seed: int) -> None:
    random = np.random.default_rng(seed)
    layers = [[tuple(map(float, each)) for each in random.uniform(1, 3, (2, 3))] for _ in range(9)]
    plans = sums(layers)
    least = np.min(plans, axis=0)
    best = min(float(max(np.array(plan) / least)) for plan in plans)
    found = least_regret(finding(plans), 3)
    assert found.bound <= best * (1 + 1e-9)
    assert found.regret == pytest.approx(float(max(np.array(plans[found.plan]) / least)))
    assert best <= found.regret <= 1.05 * found.bound

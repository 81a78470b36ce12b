"""What measuring promises: the mean of what the faster of two uncertain times saves."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.tuning.search.expected_gain import SPREAD, expected_gain, spread_of
from sartor.tuning.search.search import VariantSearch
from tests.tuning.search.searched_tasks import KERNELS, STOCK, samples, task

RATIOS = [0.9, 1.0, 1.1, 1.3, 0.8, 1.0, 1.2, 0.95]


@pytest.mark.parametrize(("present", "predicted"), [(1.0, 1.0), (1.0, 1.3), (2.0, 1.7)])
def test_the_gain_is_the_mean_of_what_the_faster_one_saves(present: float, predicted: float) -> None:
    spread = 0.3
    drawn = np.random.default_rng(0).normal(-(spread**2) / 2, spread, 400_000)
    saved = np.maximum(0.0, present - predicted * np.exp(drawn))
    assert expected_gain(present, predicted, spread) == pytest.approx(saved.mean(), rel=0.02)


def test_sure_predictions_promise_their_difference_and_uncertain_ones_more() -> None:
    assert expected_gain(3.0, 2.0, 0.01) == pytest.approx(1.0, rel=1e-3)
    assert expected_gain(2.0, 3.0, 0.01) == pytest.approx(0.0, abs=1e-9)
    assert 0 < expected_gain(2.0, 3.0, 0.2) < expected_gain(2.0, 3.0, 0.5)


def test_the_spread_is_that_within_tasks_whatever_factor_these_have() -> None:
    """Pairs of variants tell as much as a task with many, and a single one nothing."""
    drawn = np.exp(np.random.default_rng(0).normal(0, 0.1, 400))
    for size in (2, 4, 100):
        tasks = [
            [(factor * ratio, 1.0) for ratio in drawn[start : start + size]]
            for factor, start in enumerate(range(0, len(drawn), size), 1)
        ]
        assert spread_of(tasks) == pytest.approx(0.1, rel=0.2)
    whole = [(ratio, 1.0) for ratio in RATIOS]
    assert SPREAD != spread_of([whole, [*whole, (50.0, 1.0)]]) < 0.5
    assert spread_of([[pair] for pair in whole]) == SPREAD
    assert spread_of([whole[:4], whole[4:7]]) == SPREAD
    assert spread_of([whole, whole[:1]]) == SPREAD, "a single task tells nothing of the others"


def test_a_choice_that_is_close_promises_more_than_one_that_is_clear() -> None:
    others, layer = [task(f"{side}", 64, side) for side in (7, 28, 56)], task("a", 64, 14)
    search = VariantSearch([layer], samples=samples(*others))
    predicted = search.outlook({"a": KERNELS}, {}).promises
    alone = search.outlook({"a": (STOCK,)}, {}).promises
    assert predicted["a"].rate > alone["a"].rate >= 0
    assert search.outlook({"a": ()}, {}).promises == {}
    assert VariantSearch([layer]).outlook({"a": (STOCK,)}, {}).promises == {}

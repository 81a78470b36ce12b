"""The budget of errors, the model of their sums, and the error of tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.tuning.errors.error_budget import MOST_ROUNDED, ErrorBudget, are_apart, is_telling
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, cosine_distance
from sartor.tuning.errors.error_sum import joined, layer_error, layer_measure, moved, squared_error, total
from sartor.tuning.errors.token_error import TokenError, logits_among, token_error

COSINE = ErrorMeasure.parse("cosine")
BUDGETS = [ErrorBudget(RELATIVE, 1e-2), ErrorBudget(COSINE, 1e-2), ErrorBudget(RELATIVE, 0.5, given=1e-2)]


def _error_at(needed: float, budget: ErrorBudget) -> float:
    """What a plan of a sum is off by where the model of errors holds."""
    return 40 * (needed if budget.measure == COSINE else needed**0.5)


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_sum_that_is_aimed_at_is_safe_and_uses_the_budget(budget: ErrorBudget) -> None:
    for needed in (1e-2, 1e-6):
        aimed = budget.sum_aimed_at(needed, _error_at(needed, budget))
        assert budget.allows(_error_at(aimed, budget))
        assert budget.is_used_by(_error_at(aimed, budget))


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_sum_after_a_run_is_below_what_was_wrong(budget: ErrorBudget) -> None:
    found = budget.sum_after_run(1e-2, _error_at(1e-2, budget))
    assert 0.8e-2 < _error_at(found, budget) < 1e-2
    assert budget.sum_after_run(1e-2, 0.5e-2) < 1e-2, "a plan that was refused, and errs by what is allowed"


def test_a_plan_that_rounds_nothing_bounds_nothing() -> None:
    assert budget_of(1e-2).sum_aimed_at(0.0, 0.0) == math.inf


def test_the_users_bound_stands_for_the_usual_one() -> None:
    assert budget_of(1e-2).allowed == 1e-2
    assert ErrorBudget(RELATIVE, 1e-2, given=0.0).allowed == 0.0
    assert not ErrorBudget(RELATIVE, 1e-2, given=0.0).allows(1e-9)


def test_only_a_bound_on_the_relative_error_says_something_of_it() -> None:
    assert [budget.allowed_relative for budget in BUDGETS] == [1e-2, 0.0, 1e-2]


def test_what_is_as_large_as_allowed_is_not_safe() -> None:
    assert budget_of(1.0).allows(0.9)
    assert not budget_of(1.0).allows(1.0)


def test_a_run_is_explained_by_more_than_it_showed() -> None:
    assert budget_of(1.0).explains(1.1, 1.0)
    assert not budget_of(1.0).explains(1.0, 1.0)


def test_what_differs_by_little_tells_nothing() -> None:
    assert not is_telling(1.0, 1.01)
    assert is_telling(1.0, 1.2)
    assert not are_apart(1.0, 1.01)
    assert are_apart(1.0, 1.2)
    assert are_apart(0.0, 1e-9)
    assert not are_apart(0.0, 0.0)


def test_only_continuous_measures_see_small_errors() -> None:
    measures = (RELATIVE, COSINE, ErrorMeasure.parse("top1"))
    assert [ErrorBudget(measure, 1.0).sees_small_errors for measure in measures] == [True, True, False]


def budget_of(usual: float) -> ErrorBudget:
    return ErrorBudget(RELATIVE, usual)


def test_what_the_model_rounds_is_accepted_and_nothing_that_layers_may_spend() -> None:
    budget = replace(budget_of(1e-2), inherent=3e-2)
    assert (budget.allowed, budget.accepted, budget.explicable) == (1e-2, 3e-2, 3e-2)
    given = replace(budget, given=1e-4)
    assert (given.allowed, given.accepted, given.explicable) == (1e-4, 1e-4, 3e-2)
    assert replace(given, narrow=True).explicable == MOST_ROUNDED
    assert replace(budget, inherent=0.0).accepted == 1e-2


ERROR_SUM_COSINE, TOP1 = ErrorMeasure.parse("cosine"), ErrorMeasure.parse("top1")


def test_independent_errors_add_like_a_random_walk() -> None:
    assert joined([3e-3, 4e-3]) == pytest.approx(5e-3)
    assert total(squared_error(2e-3)) == pytest.approx(2e-3)
    random = np.random.default_rng(0)
    sums = random.standard_normal((10_000, 20)) @ np.full(20, 1e-3)
    assert float(np.std(sums)) == pytest.approx(joined([1e-3] * 20), rel=0.05)


def test_a_cosine_stands_for_a_relative_error() -> None:
    right = np.array([3.0, 4.0])
    off = right + np.array([4.0, -3.0]) * 1e-3
    assert layer_error(ERROR_SUM_COSINE, cosine_distance(off, right)) == pytest.approx(1e-3, rel=1e-3)
    assert layer_error(RELATIVE, 1e-3) == 1e-3
    assert math.isinf(layer_error(ERROR_SUM_COSINE, math.inf))


def test_measures_that_are_blind_to_small_errors_are_not_asked_about_layers() -> None:
    assert layer_measure(RELATIVE) == RELATIVE
    assert layer_measure(TOP1) == layer_measure(ERROR_SUM_COSINE) == ERROR_SUM_COSINE


def test_a_sum_moves_by_the_order_of_the_measure() -> None:
    assert moved(4e-4, RELATIVE, 0.5) == pytest.approx(1e-4)
    assert moved(4e-4, ERROR_SUM_COSINE, 0.5) == pytest.approx(2e-4)


_RIGHT = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]], np.float32))
_OTHER = np.log(np.array([[[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]]], np.float32))
_CACHE = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
_TOKENS = ErrorMeasure.parse("tokens")


def test_agreement_and_divergence_are_means_over_positions() -> None:
    found = token_error(_OTHER, _RIGHT)
    assert found.disagreement == 0.5
    divergence = 0.5 * math.log(2) - 0.25 * math.log(2)
    assert found.divergence == pytest.approx(divergence / 2, rel=1e-6)
    assert found.error == 0.5
    assert token_error(_RIGHT + 3, _RIGHT).error == pytest.approx(0, abs=1e-3), "logits have no origin"


def test_without_other_tokens_the_error_bounds_what_probabilities_change() -> None:
    near = np.log(np.array([[[0.48, 0.27, 0.25], [0.1, 0.2, 0.7]]], np.float32))
    found = token_error(near, _RIGHT)
    assert found.disagreement == 0
    assert 0.01 <= found.error < 0.02, "half the sum of differences of probabilities, on average"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_agrees_nowhere(wrong: float) -> None:
    spoilt = np.full_like(_RIGHT, wrong)
    assert token_error(spoilt, _RIGHT).error >= 0.5
    holes = np.where(_RIGHT.min() == _RIGHT, np.nan, _RIGHT)
    assert token_error(holes, holes).error == 0
    assert token_error(_RIGHT, holes) == TokenError(0.5, math.inf)


def test_impossible_tokens_stay_impossible() -> None:
    masked = np.where(np.arange(3) == 1, -np.inf, _RIGHT)
    assert token_error(masked, masked).error == 0
    assert token_error(_RIGHT, masked).error > 0.1, "a mask that is lost"
    assert token_error(masked, _RIGHT) == TokenError(0, math.inf)
    assert token_error(masked, _RIGHT).error == 1


def test_logits_are_the_floats_with_the_largest_last_dimension() -> None:
    counts = np.zeros((1, 9), np.int64)
    assert logits_among([_CACHE, counts, _RIGHT]) == 2
    others: list[list[Array]] = [[counts, np.zeros(9, np.float32)], [_RIGHT, _RIGHT], []]
    for outputs in others:
        with pytest.raises(UsageError, match=r"tokens compares distributions over tokens, and the model has"):
            logits_among(outputs)


@pytest.mark.parametrize(
    ("names", "shapes", "place"),
    [
        (["present.0.key", "logits"], [(1, 8, 1, 64), (1, 1, 50)], 1),
        (["lm_logits", "present.0.key"], [(1, 1, 64), (1, 8, 1, 64)], 0),
        (["scores", "present.0.key", "present_0_value"], [(1, 1, 50), (1, 8, 1, 64), (1, 8, 1, 64)], 0),
        (["start_logits", "end_logits", "answers"], [(1, 9), (1, 9), (1, 12)], 2),
        (["last_hidden_state"], [(1, 1, 64)], 0),
    ],
)
def test_names_tell_logits_from_states(names: list[str], shapes: list[tuple[int, ...]], place: int) -> None:
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    assert logits_among(outputs, names) == place
    others = [output if index == place else output + 1e-3 for index, output in enumerate(outputs)]
    if len(names) > 1:
        assert _TOKENS.of_sample(others, outputs, names=names) > 0.1, "zeros are compared as vectors"
    moved = [output + 1e-3 if index == place else output for index, output in enumerate(outputs)]
    assert _TOKENS.of_sample(moved, outputs, names=names) < 1e-3, "logits have no origin"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ties_within_rounding_are_no_disagreement(dtype: type[np.floating]) -> None:
    near = {np.float16: 2**-10, np.float32: 1e-6, np.float64: 1e-15}[dtype]
    even, tilted = np.array([[1, 1]], dtype), np.array([[1, 1 + near]], dtype)
    assert token_error(tilted, even).disagreement == token_error(even, tilted).disagreement == 0
    apart = np.array([[1, 1 + 8 * near]], dtype)
    assert token_error(even, apart).disagreement == 1
    assert token_error(np.array([[1, 2]], dtype), np.array([[2, 1]], dtype)).disagreement == 1


@pytest.mark.parametrize(
    ("cache", "least"), [(_CACHE, 0), (_CACHE + 0.01, 0), (_CACHE[::-1], 0.1), (np.zeros_like(_CACHE), 0.5)]
)
def test_other_outputs_are_compared_by_the_cosine_distance(cache: Array, least: float) -> None:
    error = _TOKENS.of_sample([_RIGHT, cache], [_RIGHT, _CACHE])
    assert least <= error <= max(1e-3, 2 * least + 0.5 * bool(least))


def test_samples_are_averaged() -> None:
    assert _TOKENS.of_samples([_TOKENS.of_sample([each], [_RIGHT]) for each in (_OTHER, _RIGHT)]) == 0.25

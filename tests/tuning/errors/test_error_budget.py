"""The budget: margins lie in the right order, and sums lead to the errors that are aimed at."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sartor.tuning.errors.error_budget import MOST_ROUNDED, ErrorBudget, are_apart, is_telling
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure

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

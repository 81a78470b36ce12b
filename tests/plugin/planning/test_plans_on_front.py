"""Fronts of plans that round: all points keep to the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver, Selected
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import PlanErrors
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from tests.plugin.planning.plans import PLAN
from tests.plugin.planning.test_planned_limits import TABLES

ALLOWED = 1e-2
TRADED = (Quantity.LATENCY, Quantity.MEMORY)


@dataclass
class Tracer:
    """Solver with given plans of (seconds, bytes, error sum); a front has the undominated ones within the limit."""

    plans: list[tuple[float, float, float]]
    bounds: list[float | None] = field(default_factory=list)

    def front_within(
        self, tables: Tables, limits: Limits, quantities: tuple[Quantity, Quantity]
    ) -> tuple[list[Recipe], bool]:
        self.bounds.append(limits.error)
        found = [plan for plan in self.plans if limits.error is None or plan[2] <= limits.error]
        if not found:
            raise InfeasibleError("nothing is left")
        best = [each for each in found if not any(a <= each[0] and b < each[1] for a, b, _ in found)]
        return [_recipe(*each) for each in best], True

    def within(self, tables: Tables, limits: Limits) -> Selected:
        return self.front_within(tables, limits, TRADED)[0], tables

    def most_exact(self, tables: Tables) -> Selected:
        return self.within(tables, UNLIMITED)


def _recipe(seconds: float, size: float, needed: float) -> Recipe:
    amounts = {Quantity.LATENCY: seconds, Quantity.MEMORY: size, Quantity.ERROR: needed}
    return Recipe(replace(PLAN, predicted=seconds), LayerGraph((), (), ()), {}, amounts)


def _selector(tracer: Tracer, simulate: Callable[[Recipe], float], *, is_free: bool = False) -> PlanSelector:
    allowed = ErrorBudget(RELATIVE, ALLOWED)
    errors = PlanErrors(allowed, lambda recipe, tables: simulate(recipe), is_free=is_free)
    return PlanSelector(cast(PlanSolver, tracer), allowed, errors)


def _budget(factor: float, tracer: Tracer, *, is_free: bool = False) -> PlanSelector:
    """Return a selector whose plans have ``factor`` times the error that the error model predicts."""
    return _selector(tracer, lambda recipe: factor * recipe.needed[Quantity.ERROR] ** 0.5, is_free=is_free)


# From fast and small to slow, large and exact, and one that is dominated unless others are left out.
PLANS = [(1.0, 90.0, 1e-4), (2.0, 60.0, 9e-5), (3.0, 50.0, 2e-5), (3.5, 70.0, 1e-5), (4.0, 80.0, 0.0)]


def _seconds(budget: PlanSelector) -> tuple[list[float], bool]:
    found, complete = budget.plans_on_front(TABLES, UNLIMITED, TRADED)
    assert budget.errors is not None
    assert all(error is not None and error <= ALLOWED for _, error in found)
    assert [error for _, error in found] == [budget.errors.simulate(each, TABLES) for each, _ in found]
    return [each.needed[Quantity.LATENCY] for each, _ in found], complete


def test_a_front_within_the_budget_stays_as_it_is() -> None:
    tracer = Tracer(PLANS)
    assert _seconds(_budget(0.5, tracer, is_free=True)) == ([1.0, 2.0, 3.0], True)
    assert tracer.bounds == [None]


def test_plans_that_err_by_too_much_make_way_for_others() -> None:
    tracer = Tracer(PLANS)
    assert _seconds(_budget(2.0, tracer)) == ([3.0], False)
    assert tracer.bounds[0] is None
    assert tracer.bounds[1] is not None
    assert 1e-5 < tracer.bounds[1] < 9e-5
    assert _seconds(_budget(2.5, Tracer(PLANS))) == ([3.5], False)


def test_what_kept_to_the_budget_before_others_did_not_is_on_the_front() -> None:
    """The sum of one is more than what would have been enough for the other."""
    plans = [(1.0, 90.0, 1e-4), (2.0, 60.0, 9e-5)]
    budget = _selector(Tracer(plans), lambda recipe: 1.5e-2 if recipe.needed[Quantity.LATENCY] == 1.0 else 5e-3)
    assert _seconds(budget) == ([2.0], False)


def test_where_nothing_keeps_it_there_is_no_front() -> None:
    assert _seconds(_budget(100.0, Tracer(PLANS[:2]))) == ([], False)
    with pytest.raises(InfeasibleError):
        _budget(1.0, Tracer([])).plans_on_front(TABLES, UNLIMITED, TRADED)


def test_what_selection_learned_is_where_the_front_begins() -> None:
    tracer = Tracer(PLANS)
    budget = _budget(2.0, tracer)
    budget.select(TABLES, UNLIMITED)
    assert budget.bound is not None
    begun = len(tracer.bounds)
    assert _seconds(budget)[0] == [3.0]
    assert tracer.bounds[begun] == budget.bound

"""The budget: plans are simulated and selected again until they keep to it and use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import PlanErrors
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from tests.plugin.planning.plans import PLAN

TABLES = Tables({}, {})
ALLOWED = 1e-2


@dataclass
class Solver:
    """A network of which any share may be narrow: the larger the sum of errors, the less time it takes.

    Attributes:
        most: sum of the fastest plan.
        least: sum of the most exact one.
        bounds: under which plans were asked for.
    """

    most: float = 1e-4
    least: float = 0.0
    bounds: list[float | None] = field(default_factory=list)

    def within(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        self.bounds.append(limits.error)
        needed = self.most if limits.error is None else min(limits.error * 0.98, self.most)
        if needed < self.least:
            raise InfeasibleError("nothing is left")
        return [self._recipe(needed)], tables

    def most_exact(self, tables: Tables) -> tuple[list[Recipe], Tables]:
        return [self._recipe(self.least)], tables

    def _recipe(self, needed: float) -> Recipe:
        plan = replace(PLAN, predicted=1.0 - needed)
        return Recipe(plan, LayerGraph((), (), ()), {}, {Quantity.ERROR: needed})


def budget(simulate: Callable[[float], float], measure: ErrorMeasure = RELATIVE) -> PlanSelector:
    """Return a selector whose plans have the errors that ``simulate`` returns; ``select`` sets its solver."""
    allowed = ErrorBudget(measure, ALLOWED)
    errors = PlanErrors(allowed, lambda recipe, tables: simulate(recipe.needed[Quantity.ERROR]))
    return PlanSelector(cast(PlanSolver, Solver()), allowed, errors)


def select(found: PlanSelector, solver: Solver, limits: Limits = UNLIMITED) -> float:
    found.solver = cast(PlanSolver, solver)
    recipes, _ = found.select(TABLES, limits)
    return float(recipes[0].needed[Quantity.ERROR])


@pytest.mark.parametrize("factor", [0.1, 0.9])
def test_a_plan_within_the_budget_is_not_bounded(factor: float) -> None:
    solver = Solver(most=ALLOWED**2)
    assert select(budget(lambda needed: factor * needed**0.5), solver) == solver.most
    assert solver.bounds == [None]


@pytest.mark.parametrize("factor", [1.2, 3.0, 50.0])
@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0])
def test_the_budget_is_kept_and_used_whatever_the_model_of_errors(factor: float, exponent: float) -> None:
    def simulate(needed: float) -> float:
        return float(factor * ALLOWED * (needed / solver.most) ** exponent)

    solver = Solver()
    assert 0.8 * ALLOWED <= simulate(select(budget(simulate), solver)) <= ALLOWED
    assert len(solver.bounds) <= 6


def test_one_correction_is_enough_where_the_model_holds() -> None:
    solver = Solver()
    select(budget(lambda needed: 4 * needed**0.5), solver)
    assert len(solver.bounds) == 2
    solver = Solver()
    select(budget(lambda needed: 400 * needed, ErrorMeasure.parse("cosine")), solver)
    assert len(solver.bounds) == 2


def test_what_was_learned_is_where_the_next_selection_begins() -> None:
    found, solver = budget(lambda needed: 4 * needed**0.5), Solver()
    first = select(found, solver)
    assert select(found, solver) == pytest.approx(first)
    assert len(solver.bounds) == 3


def test_tighter_limits_are_kept() -> None:
    assert select(budget(lambda needed: needed**0.5), Solver(), Limits(error=1e-6)) <= 1e-6


def test_where_nothing_keeps_it_the_most_exact_plan_is_left() -> None:
    solver = Solver(least=5e-5)
    assert select(budget(lambda needed: 100 * needed**0.5), solver) == solver.least
    with pytest.raises(InfeasibleError):
        select(budget(lambda needed: 0.0), Solver(least=1.0))


def test_errors_that_no_sum_explains_end() -> None:
    solver = Solver()
    assert select(budget(lambda needed: 1.0), solver) == solver.least
    assert len(solver.bounds) <= 8

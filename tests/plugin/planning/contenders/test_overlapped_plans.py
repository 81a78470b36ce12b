"""Plans for a first inference that reads while it executes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from sartor.frontend.imported_model import ImportedModel
from sartor.planning.contenders.other_plans import overlapped_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import CONFIG, FakeTuner, tables_of

# Seconds of executing and of reading. The first has the least sum, the second executes fastest, and the third has the
# least maximum.
_COSTS = [(4.0, 1.0), (2.0, 5.0), (3.0, 3.0)]


def _tables(imported: ImportedModel) -> Tables:
    """Each layer's variants cost these in turn; one byte is read per second."""
    found = tables_of(imported, lambda task, descriptor: 1.0)
    measured = {
        key: {
            descriptor: replace(each, samples=(_COSTS[index % 3][0],), packed_bytes=int(_COSTS[index % 3][1]))
            for index, (descriptor, each) in enumerate(of_task.items())
        }
        for key, of_task in found.measured.items()
    }
    return replace(found, measured=measured, loading=1.0)


def _selector(imported: ImportedModel, objective: Objective) -> PlanSelector:
    config = replace(CONFIG, objective=objective)
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), config.planning, silent)
    return PlanSelector(solver, config.error_budget)


def test_the_fastest_and_the_best_overlapped_plan_run_beside_the_least_sum(imported_of: ImportedOf) -> None:
    imported = imported_of("lenet")
    selector, tables = _selector(imported, Objective.COLD), _tables(imported)
    selected, tables = selector.select(tables, Limits())
    found, tables = overlapped_plans(selector, tables, selected, Limits())
    assert 1 <= len(found) <= 2
    by_sum = selected[0]
    assert min(each.needed[Quantity.LATENCY] for each in found) < by_sum.needed[Quantity.LATENCY]
    assert min(_overlapped(each) for each in found) < _overlapped(by_sum)
    assert all(each.needed[Quantity.COLD] >= by_sum.needed[Quantity.COLD] for each in found)
    assert {each.plan.objective for each in found} == {"cold"}
    assert overlapped_plans(selector, tables, [by_sum, *found], Limits())[0] == []


def _overlapped(recipe: Recipe) -> float:
    assert recipe.overlapped is not None
    return recipe.overlapped


@pytest.mark.parametrize(("objective", "loading"), [(Objective.LATENCY, 1.0), (Objective.COLD, None)])
def test_where_nothing_is_read_there_is_nothing_to_add(
    imported_of: ImportedOf, objective: Objective, loading: float | None
) -> None:
    imported = imported_of("lenet")
    tables = replace(_tables(imported), loading=loading)
    assert overlapped_plans(_selector(imported, objective), tables, [], Limits()) == ([], tables)

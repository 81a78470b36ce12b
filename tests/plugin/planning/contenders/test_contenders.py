"""Contenders: plans on one device, with the least regret, and rivals of the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import pytest

from sartor.costing.time_budget import TimeBudget
from sartor.planning.contenders.other_plans import home_plans, of_call, weighted
from sartor.planning.contenders.rival_plans import Incumbent, rival_plans
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.profiling.profiler import Profiler
from sartor.profiling.refinement import Refined
from sartor.profiling.refiner import Refiner
from sartor.progress import silent
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, selector, tables_of
from tests.plugin.planning.two_devices import CONFIG, tables, transfers
from tests.plugin.profiling.test_refiner import FakeProfiler
from tests.tuning.cost_tables.test_in_network import Named


@pytest.mark.parametrize(("seconds", "expected"), [(1e-5, [("cpu",)]), (1e-2, [])])
def test_the_best_plan_on_the_cpu_runs_beside_a_mixed_one(
    imported_of: ImportedOf, seconds: float, expected: list[tuple[str, ...]]
) -> None:
    imported = imported_of("lenet")
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), CONFIG.planning, silent)
    selector = PlanSelector(solver, CONFIG.error_budget)
    costs = tables(imported, transfers(seconds, seconds))
    selected, costs = selector.select(costs, Limits())
    found, _ = home_plans(selector, costs, selected, Limits())
    assert [each.devices for each in found] == expected


def measured(name: str, seconds: float, *baseline: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "backend")
    return Measurement(key, Status.OK, (seconds,), baseline)


def test_what_was_not_timed_with_the_sizes_of_a_call_takes_as_long_as_in_the_mean() -> None:
    """Stock code is not timed with small sizes where it is too slow with the largest; it is not free."""
    broken = Measurement(measured("broken", 1.0).key, Status.CRASHED)
    rows = {"stock": measured("stock", 0.6), "fast": measured("fast", 0.2, 0.6), "broken": broken}
    tables = Tables({"task": tuple(map(Named, rows))}, {"task": rows})  # type: ignore[arg-type]
    large = of_call(tables, {"task": {"stock": measured("stock", 3.0), "fast": measured("fast", 1.0, 3.0)}})
    small = of_call(tables, {"task": {"fast": measured("fast", 0.01)}})
    assert [small.seconds("task", name) for name in rows] == [0.6, 0.01, None]
    for share in (0.0, 0.25, 1.0):
        found = weighted(tables, [large, small], [share, 1 - share])
        expected = [share * 3.0 + (1 - share) * 0.6, share * 1.0 + (1 - share) * 0.01]
        assert [found.seconds("task", name) for name in ("stock", "fast")] == pytest.approx(expected)
        assert found.measured["task"]["broken"] is broken


UNIT = 1e-3
Times = Callable[[str, str], float]


def pairs(imported_of: ImportedOf) -> Mapping[str, tuple[str, str]]:
    """Two variants of each task that has several, which a test makes the fastest."""
    variants = tables_of(imported_of("residual"), lambda key, name: UNIT).variants
    return {key: (found[0].descriptor, found[1].descriptor) for key, found in variants.items() if len(found) > 1}


def times(imported_of: ImportedOf, first: float, second: float, slow: float = 1.0) -> Times:
    """Times of the two variants of each task, of which one task takes longer by a factor; others take 10 ms."""
    known = pairs(imported_of)
    longer = min(known)

    def seconds(key: str, name: str) -> float:
        one, other = known.get(key, (name, name))
        return UNIT * (slow if key == longer else 1.0) * {one: first, other: second}.get(name, 10.0)

    return seconds


def wanting(imported_of: ImportedOf, plans: int) -> PlanSelector:
    found = selector(imported_of("residual"), FakeTuner())
    return replace(found, solver=replace(found.solver, policy=replace(found.policy, plans=plans)))


def refined(imported_of: ImportedOf, plans: int, alone: Times, inside: Times, budget: float | None = None) -> Refined:
    select = wanting(imported_of, plans)
    recipes, tables = select.select(tables_of(select.imported, alone), UNLIMITED)
    profiler = FakeProfiler(inside, build_seconds=1.0)
    refiner = Refiner(cast(Profiler, profiler), select, TimeBudget.of(budget))
    return refiner.refine(tables, recipes)


def seconds(recipe: Recipe, inside: Times) -> float:
    return sum(inside(layer.task.key, recipe.variants[layer.name].descriptor) for layer in recipe.graph.layers)


def test_a_plan_that_tables_cannot_tell_from_the_best_is_run_and_shipped(imported_of: ImportedOf) -> None:
    alone, inside = times(imported_of, 1.0, 1.02), times(imported_of, 1.0, 0.8, slow=1.3)
    single, several = (refined(imported_of, plans, alone, inside) for plans in (1, 3))
    assert len(single.tried) == 1
    assert 1 < len(several.tried) <= 1 + 2 + 2
    assert seconds(several.recipe, inside) < 0.9 * seconds(single.recipe, inside)


def test_what_rivals_show_of_single_layers_is_combined(imported_of: ImportedOf) -> None:
    """No rival need have all fast variants; the plan that is selected after they ran does."""
    alone, inside = times(imported_of, 1.0, 1.02), times(imported_of, 1.0, 0.8, slow=1.3)
    found = refined(imported_of, 3, alone, inside)
    chosen = {layer.task.key: found.recipe.variants[layer.name].descriptor for layer in found.recipe.graph.layers}
    tried = {
        (layer.task.key, plan.variants[layer.name].descriptor) for plan in found.tried for layer in plan.graph.layers
    }
    for key, (_, faster) in pairs(imported_of).items():
        assert (chosen[key] == faster) == ((key, faster) in tried)


def test_tables_that_are_right_leave_nothing_to_run(imported_of: ImportedOf) -> None:
    alone = times(imported_of, 1.0, 1.02)
    assert len(refined(imported_of, 3, alone, alone).tried) == 1


def test_a_time_budget_leaves_no_rivals_that_it_has_no_time_for(imported_of: ImportedOf) -> None:
    alone, inside = times(imported_of, 1.0, 1.02), times(imported_of, 1.0, 0.8, slow=1.3)
    assert len(refined(imported_of, 3, alone, inside, budget=1.0).tried) == 1
    assert len(refined(imported_of, 3, alone, inside, budget=100.0).tried) > 1


def rivals(imported_of: ImportedOf, ratio: float, second: float, plans: int = 4) -> tuple[Recipe, list[Recipe], Tables]:
    """The best plan and its rivals, if the layers' times in the network are right."""
    select = wanting(imported_of, plans)
    (best,), tables = select.select(tables_of(select.imported, times(imported_of, 1.0, second)), UNLIMITED)
    found = {(layer.task.key, best.variants[layer.name].descriptor): UNIT for layer in best.graph.layers}
    incumbent = Incumbent(best, ratio, [best], InNetworkTimes(found), InNetworkTimes(found), UNLIMITED)
    recipes, tables = rival_plans(select, tables, incumbent)
    return best, recipes, tables


@pytest.mark.parametrize(("ratio", "some"), [(1.0, False), (1.02, False), (1.2, True), (1 / 1.2, True)])
def test_rivals_are_found_if_the_tables_err_by_more_than_the_plans_differ(
    imported_of: ImportedOf, ratio: float, some: bool
) -> None:
    best, found, _ = rivals(imported_of, ratio, 1.1)
    assert bool(found) == some
    assert len(found) <= 3
    assert not any(each.is_same_as(other) for each in [best, *found] for other in [best, *found] if each is not other)


def test_conversions_that_only_rivals_need_are_measured(imported_of: ImportedOf) -> None:
    best, found, tables = rivals(imported_of, 1.3, 1.01)
    symbols = {kind.symbol for kind in tables.adapts}
    assert {adapt.symbol for plan in (best, *found) for adapt in plan.plan.adapts} <= symbols

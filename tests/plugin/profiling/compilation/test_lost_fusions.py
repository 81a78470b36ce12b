"""Plans whose fused layers run alone, and not in the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.dialect_passes.annotate import annotate
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.profiling.compilation.lost_fusions import lost_by_fusion, without_fusions
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import UNLIMITED
from tests.plugin.planning.selecting_fakes import CONFIG, FakeTuner, ImportedOf, measurement, selector


@dataclass
class Runs:
    """Networks that end as planted if they have fused layers, and well otherwise."""

    fused: Status
    split: Status = Status.OK
    ran: list[Recipe] = field(default_factory=list)

    def run(self, recipes: Sequence[Recipe]) -> None:
        self.ran += recipes

    def run_of(self, recipe: Recipe) -> Measurement | None:
        status = self.fused if is_fused(recipe) else self.split
        samples = (1.0,) if status is Status.OK else ()
        return replace(measurement("net", 1.0), status=status, samples=samples, message="it hung\nfor ever")


def is_fused(recipe: Recipe) -> bool:
    return any(layer.task.stages for layer in recipe.graph.layers)


@pytest.fixture
def case(imported_of: ImportedOf) -> tuple[PlanSelector, Tables]:
    """A network with fused pairs, and tables in which these are fastest."""
    select = selector(imported_of("separable"), FakeTuner())
    graph = select.imported.graph
    fused = {each.layer.task.key for each in graph.fusions}
    variants = annotate(graph, routines_for(()), CONFIG.target, FUSED_ROUTINES).variants
    measured = {
        key: {each.descriptor: measurement(each.descriptor, 1e-5 if key in fused else 1e-4) for each in listed}
        for key, listed in variants.items()
    }
    return select, Tables(variants, measured)


def test_a_plan_without_fused_layers_is_selected_from_what_is_left(case: tuple[PlanSelector, Tables]) -> None:
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    assert is_fused(recipes[0])
    end = lost_by_fusion(recipes, Runs(Status.TIMEOUT))
    assert end == "timeout: it hung"
    again, _ = select.select(without_fusions(tables, select.imported.graph), UNLIMITED)
    assert again
    assert not any(is_fused(each) for each in again)
    assert lost_by_fusion(again, Runs(Status.TIMEOUT)) is None


@pytest.mark.parametrize("status", [Status.OK, Status.WRONG_RESULT])
def test_a_plan_that_the_device_runs_is_not_lost(status: Status, case: tuple[PlanSelector, Tables]) -> None:
    """Whether it is right is judged elsewhere."""
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    assert lost_by_fusion(recipes, Runs(status)) is None


def test_the_unsplit_model_is_no_plan(case: tuple[PlanSelector, Tables]) -> None:
    """It runs, and is far slower than layers without fusion."""
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    runs = Runs(Status.CRASHED)
    assert lost_by_fusion([*recipes, unsplit_recipe(select.imported, select.policy)], runs) is not None
    assert runs.ran


def test_another_plan_that_works_is_enough(case: tuple[PlanSelector, Tables]) -> None:
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    plain, _ = select.select(without_fusions(tables, select.imported.graph), UNLIMITED)
    assert lost_by_fusion([*recipes, *plain], Runs(Status.CRASHED)) is None
    assert lost_by_fusion([*recipes, *plain], Runs(Status.CRASHED, split=Status.CRASHED)) is not None

"""Which networks need not run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import LateError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.policies import Search
from sartor.profiling.compilation import tuned_network
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.plan_choice import choose
from sartor.profiling.compilation.stock_floor import expected_seconds, is_hopeless, may_leave_out
from sartor.profiling.compilation.tuned_network import tune_network
from sartor.profiling.profiler import Profiler
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.limits import UNLIMITED
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, selector, tables_of

UNIT = 1e-4


@pytest.fixture
def case(imported_of: ImportedOf) -> tuple[ImportedModel, Recipe, Recipe, Tables]:
    """A model, a plan for it, the unsplit model, and times."""
    select = selector(imported_of("residual"), FakeTuner())
    recipes, tables = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    return select.imported, recipes[0], unsplit_recipe(select.imported, select.policy), tables


def predicted(recipe: Recipe, of: Callable[[float], float]) -> Recipe:
    """The recipe with another predicted time."""
    assert recipe.plan.predicted is not None
    return replace(recipe, plan=replace(recipe.plan, predicted=of(recipe.plan.predicted)))


@pytest.mark.parametrize(("factor", "hopeless"), [(0.1, True), (0.9, False)])
def test_the_unsplit_model_need_not_run_if_its_layers_are_far_slower(
    case: tuple[ImportedModel, Recipe, Recipe, Tables], factor: float, hopeless: bool
) -> None:
    imported, plan, unsplit, tables = case
    seconds = UNIT * len(imported.graph.layers)
    given = predicted(plan, lambda _: factor * seconds)
    assert is_hopeless(unsplit, [given, unsplit], tables) == hopeless
    assert not is_hopeless(given, [given, unsplit], tables)


def test_without_a_plan_the_unsplit_model_runs(case: tuple[ImportedModel, Recipe, Recipe, Tables]) -> None:
    _, _, unsplit, tables = case
    assert not is_hopeless(unsplit, [unsplit], tables)


def test_layers_that_were_not_measured_prove_nothing(case: tuple[ImportedModel, Recipe, Recipe, Tables]) -> None:
    _, plan, unsplit, tables = case
    given = predicted(plan, lambda _: 1e-9)
    assert not is_hopeless(unsplit, [given, unsplit], replace(tables, measured={}))


def test_stock_code_that_was_stopped_is_slow(case: tuple[ImportedModel, Recipe, Recipe, Tables]) -> None:
    imported, _, unsplit, tables = case
    (key, listed) = next(pair for pair in tables.variants.items() if len(pair[1]) > 1)
    count = sum(layer.task.key == key for layer in imported.graph.layers)
    found = dict(tables.measured[key])
    first = listed[0].descriptor
    found[first] = replace(found[first], status=Status.TIMEOUT, samples=(), baseline_samples=())
    stopped = replace(tables, measured={**tables.measured, key: found})
    others = UNIT * (len(imported.graph.layers) - count)
    assert expected_seconds(unsplit, stopped) == pytest.approx(others + 16 * UNIT * count)


def test_layers_that_are_slow_alone_prove_little(case: tuple[ImportedModel, Recipe, Recipe, Tables]) -> None:
    """Stock code of single layers may be hundreds of times slower than kernels, and the model is not."""
    imported, plan, unsplit, tables = case
    assert expected_seconds(unsplit, tables) == pytest.approx(UNIT * len(imported.graph.layers))
    key = next(key for key, listed in tables.variants.items() if len(listed) > 1)
    slow, *others = (each.descriptor for each in tables.variants[key])
    found = dict(tables.measured[key])
    assert set(others) & set(found)
    found[slow] = replace(found[slow], samples=(UNIT * 1000,))
    changed = replace(tables, measured={**tables.measured, key: found})
    count = sum(each.task.key == key for each in imported.graph.layers)
    added = expected_seconds(unsplit, changed) - expected_seconds(unsplit, tables)
    assert added == pytest.approx(15 * UNIT * count)
    assert not is_hopeless(unsplit, [predicted(plan, lambda _: expected_seconds(unsplit, changed) / 2)], changed)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"pins": ("*=*",)}, True),
        ({"memory_limit": "1GiB"}, False),
        ({"objective": "cold"}, False),
        ({"objective": "memory"}, False),
        ({"target": "vulkan"}, True),
        ({"target": "vulkan", "search": "full"}, True),
        ({"search": "full"}, False),
        ({"vs_stock": True}, False),
    ],
)
def test_only_speed_decides_without_the_unsplit_model(settings: dict[str, Any], expected: bool) -> None:
    config = CompileConfig(threads=1, **settings)
    assert may_leave_out(config, is_bounded=False) == expected


@pytest.mark.parametrize(("factor", "runs"), [(0.9, False), (1.1, True)])
def test_within_a_time_budget_the_unsplit_model_runs_if_it_is_expected_to_be_faster(
    case: tuple[ImportedModel, Recipe, Recipe, Tables], factor: float, runs: bool
) -> None:
    imported, plan, unsplit, tables = case
    config = CompileConfig(threads=1, search=Search.FULL)
    assert may_leave_out(config, is_bounded=True)
    assert not may_leave_out(replace(config, vs_stock=True), is_bounded=True)
    given = predicted(plan, lambda _: factor * UNIT * len(imported.graph.layers))
    assert is_hopeless(unsplit, [given, unsplit], tables, is_bounded=True) != runs


def test_of_predictions_a_plan_is_made(case: tuple[ImportedModel, Recipe, Recipe, Tables]) -> None:
    imported, _, _, tables = case
    select = selector(imported, FakeTuner(is_late=True))
    recipes, _ = choose(tables, select, cast(Profiler, SimpleNamespace(counts_memory=False)))
    assert [each.plan.unsplit for each in recipes] == [False, True]


def test_the_predicted_plan_ships_where_there_is_no_time_to_build_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nothing: Any = None
    imported: Any = SimpleNamespace(graph=None)
    checking: Any = SimpleNamespace(finish=lambda: None)
    begun: Any = SimpleNamespace(builder=SimpleNamespace(until=lambda _: nullcontext()))
    floor: Any = SimpleNamespace(refined=SimpleNamespace(profiled=SimpleNamespace(recipe="the first")))

    def tuned(*_: object, predicts: bool = False, **__: object) -> object:
        if predicts:
            return floor
        raise LateError("there was no time to compile it")

    monkeypatch.setattr(tuned_network, "_tuned", tuned)
    monkeypatch.setattr(tuned_network, "find_candidates", lambda *_, **__: Candidates({}, ()))
    found = Candidacy(imported, nothing, nothing, checking, begun)
    bench = Bench(nothing, Path(), nothing, TimeBudget.of(60.0), silent)
    assert tune_network(found, CompileConfig(threads=1), bench, Path()) is floor
    assert "the predicted one ships" in caplog.text

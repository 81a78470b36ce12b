"""Selecting: conversions that do not work are done without, mixtures compete, and two devices share a plan."""

from __future__ import annotations

import math

import pytest

from sartor.codegen.ir.layer import LayerKind
from sartor.errors import InfeasibleError
from sartor.planning import plan_solver
from sartor.planning.contenders.single_type_plans import single_precision_plans
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.selection.programming.alternatives import alternatives
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, selector, tables_of, types
from tests.plugin.planning.two_devices import devices_of, selected, transfers

FAST, SLOW = 1e-4, 1e-3


def layouts(recipe: Recipe) -> set[str]:
    return {variant.implementation.output.layout for variant in recipe.variants.values()}


def _channels_last_is_fast(key: str, descriptor: str) -> float:
    return FAST if "nhwc" in descriptor else SLOW


def test_a_conversion_that_does_not_work_is_done_without(
    imported_of: ImportedOf, caplog: pytest.LogCaptureFixture
) -> None:
    imported = imported_of("residual")
    tables = tables_of(imported, _channels_last_is_fast)
    (best, *_), known = selector(imported, FakeTuner()).select(tables, UNLIMITED)
    assert layouts(best) == {"nhwc"}
    assert all(math.isfinite(adapt) for adapt in known.adapts.values())
    (best, *_), known = selector(imported, FakeTuner(works=lambda case: False)).select(tables, UNLIMITED)
    assert "nhwc" not in {
        schema.layout for variant in best.variants.values() for schema in variant.implementation.inputs
    }
    assert set(known.adapts.values()) == {math.inf}
    assert "does not work: no lowering" in caplog.text


@pytest.mark.parametrize("load", [0.0, 0.5])
def test_conversions_are_measured_again_if_other_programs_computed(imported_of: ImportedOf, load: float) -> None:
    imported, tuner = imported_of("residual"), FakeTuner(load=load)
    _, known = selector(imported, tuner).select(tables_of(imported, _channels_last_is_fast), UNLIMITED)
    assert known.adapts
    assert (tuner.again > 0) == (load > 0)


def test_measuring_conversions_takes_no_time_from_the_search_for_other_plans(
    imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver takes 3 s each time, and the conversions in between 100."""
    now, given = 0.0, list[float | None]()

    def solved(*args: object, seconds: float | None = None, **options: object) -> list[Selection]:
        nonlocal now
        given.append(seconds)
        now += 3.0
        return alternatives(*args, seconds=None, **options)  # type: ignore[arg-type]

    def measured(case: BenchmarkCase) -> bool:
        nonlocal now
        now += 100.0
        return len(given) > 1

    monkeypatch.setattr(plan_solver, "perf_counter", lambda: now)
    monkeypatch.setattr(plan_solver, "alternatives", solved)
    imported = imported_of("residual")
    found = selector(imported, FakeTuner(works=measured))
    recipes, _ = found.different(tables_of(imported, _channels_last_is_fast), UNLIMITED, 2, 1e-5, math.inf)
    assert recipes
    assert now > 100
    assert given == [plan_solver._DIFFERENT_SECONDS - 3.0 * calls for calls in range(len(given))]
    assert len(given) > 1


def test_plans_in_one_type_compete_where_they_come_near(imported_of: ImportedOf) -> None:
    imported = imported_of("residual")
    first = imported.graph.layers[0].task.key

    def seconds(key: str, descriptor: str) -> float:
        return by_type(f32=2.0, bf16=0.99 if key == first else 1.0, f16=1.5)(key, descriptor)

    found = selector(imported, FakeTuner(), Precision.MIXED)
    mixed, tables = found.select(tables_of(imported, seconds, "bf16", "f16"), UNLIMITED)
    assert types(mixed[0]) == {"bf16"}
    assert single_precision_plans(found, tables, mixed, UNLIMITED)[0] == []


def test_the_mixture_is_not_all_that_is_run(imported_of: ImportedOf) -> None:
    imported = imported_of("residual")
    first = imported.graph.layers[0].task.key

    def seconds(key: str, descriptor: str) -> float:
        f16 = 0.9 if key == first else 1.1
        return by_type(f32=2.0, bf16=1.0, f16=f16)(key, descriptor)

    found = selector(imported, FakeTuner(), Precision.MIXED)
    mixed, tables = found.select(tables_of(imported, seconds, "bf16", "f16"), UNLIMITED)
    assert types(mixed[0]) == {"bf16", "f16"}
    single, _ = single_precision_plans(found, tables, mixed, UNLIMITED)
    assert [types(one) for one in single] == [{"bf16"}, {"f16"}]


def test_plans_in_one_type_keep_to_the_limits_that_were_tightened(imported_of: ImportedOf) -> None:
    found = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    seconds = by_type(f32=1.0, bf16=0.9, f16=0.95)
    mixed, tables = found.select(tables_of(found.imported, seconds, "bf16", "f16"), UNLIMITED)
    free, _ = single_precision_plans(found, tables, mixed, UNLIMITED)
    assert free
    least = min(each.needed[Quantity.MEMORY] for each in found.solver.smallest(tables)[0])
    assert single_precision_plans(found, tables, mixed, Limits(memory=least / 2))[0] == []


@pytest.mark.parametrize(
    ("precision", "tried"),
    [
        (Precision.MIXED_WEIGHTS, {Precision.F32, Precision.INT8_WEIGHTS, Precision.INT4_WEIGHTS}),
        (Precision.INT4_WEIGHTS, {Precision.F32}),
        (Precision.INT8, {Precision.F32}),
    ],
)
def test_plans_in_one_type_stay_within_what_is_allowed(
    precision: Precision, tried: set[Precision], imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = selector(imported_of("residual"), FakeTuner(), precision), set[Precision]()

    def refuse(other: Precision) -> None:
        asked.add(other)
        raise InfeasibleError("none")

    mixed, tables = found.select(tables_of(found.imported, by_type(f32=1.0, i8=1.0, i4=1.0)), UNLIMITED)
    monkeypatch.setattr(type(found), "in_precision", lambda _, other: refuse(other))
    assert single_precision_plans(found, tables, mixed, UNLIMITED)[0] == []
    assert asked == tried


def test_layers_go_where_they_are_fastest_if_transfers_pay(imported_of: ImportedOf) -> None:
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(1e-5, 1e-5))
    kinds = {layer.name: layer.task.kind for layer in imported.graph.layers}
    assert devices_of(recipe) == {
        name: "vulkan" if kind is LayerKind.CONVOLUTION else "cpu" for name, kind in kinds.items()
    }
    assert recipe.devices == ("cpu", "vulkan")


@pytest.mark.parametrize(("to_gpu", "to_cpu"), [(1e-2, 1e-5), (1e-5, 1e-2)])
def test_all_layers_stay_on_the_cpu_if_a_direction_costs_more(
    imported_of: ImportedOf, to_gpu: float, to_cpu: float
) -> None:
    recipe = selected(imported_of("lenet"), transfers(to_gpu, to_cpu))
    assert recipe.devices == ("cpu",)


def test_nothing_crosses_without_a_measured_transfer(imported_of: ImportedOf) -> None:
    assert selected(imported_of("lenet"), {}).devices == ("cpu",)


def test_transfers_are_conversions_of_the_plan(imported_of: ImportedOf) -> None:
    plan = selected(imported_of("lenet"), transfers(2e-5, 3e-5)).plan
    crossing = [adapt for adapt in plan.adapts if adapt.source.partition(":")[0] != adapt.target.partition(":")[0]]
    seconds = {(each.source.partition(":")[0], round(each.seconds or 0.0, 5)) for each in crossing}
    assert {("cpu", 2e-5), ("vulkan", 3e-5)} <= seconds
    parts = [*(layer.seconds or 0.0 for layer in plan.layers), *(adapt.seconds or 0.0 for adapt in plan.adapts)]
    assert plan.predicted == pytest.approx(sum(parts))

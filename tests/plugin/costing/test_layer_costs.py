"""What the search of variants is given, and what is measured first, or guessed, where time is short."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.codegen.routine_registry import described
from sartor.config import CompileConfig
from sartor.costing import layer_costs
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import first_guesses, in_order, make_tuner, tune
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Search
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.records.hardware import host
from sartor.tuning.records.isa_level import isa_class
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, Sample
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool

SHIPPED = (Sample("facts", described("cpu:f32/conv2d.direct{columns=4,vectors=2}"), 1e-5),)


class FakeSearch:
    """Finds nothing, and keeps what it was given."""

    given: tuple[Any, ...] = ()

    def __init__(self, *given: Any, **_: Any) -> None:
        FakeSearch.given = given

    def measured(self) -> dict[str, Any]:
        return {}

    def guessed(self, _: object) -> dict[str, Any]:
        return {}


def fake_tuner(hardware: str, target: Target) -> Any:
    return SimpleNamespace(
        target=target,
        store=SimpleNamespace(hardware=hardware),
        known=lambda cases: {},
        measure=lambda cases: {},
        progress=silent,
        is_bounded=False,
        is_late=False,
    )


@pytest.mark.parametrize(
    ("hardware", "target", "expected"),
    [
        (host().key, Target.create("cpu"), SHIPPED),
        ("another machine", Target.create("cpu"), ()),
        (host().key, Target.create("cpu", "x86-64-v3"), SHIPPED),
        (host().key, Target.create("cpu", "x86-64-v2"), ()),
        ("another machine", Target.create("cpu", "x86-64-v3"), ()),
        (host().key, Target.create("vulkan"), ()),
    ],
)
def test_the_package_s_times_are_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, hardware: str, target: Target, expected: tuple[Sample, ...]
) -> None:
    known = {isa_class(host()), "x86-64-v3"}
    monkeypatch.setattr(layer_costs, "shipped_samples", lambda isa, threads: SHIPPED if isa in known else ())
    monkeypatch.setattr(layer_costs, "SearchRun", FakeSearch)
    imported: Any = SimpleNamespace(graph=SimpleNamespace(all_layers=tuple, layers=(), calls=()))
    layer_costs._measured(imported, [], fake_tuner(hardware, target), ())
    assert FakeSearch.given[-1] == expected


@pytest.mark.parametrize(
    ("until", "covered", "bounded", "expected"),
    [
        (None, True, False, (0.01, False)),
        (None, False, False, (0.01, True)),
        (None, True, True, (0.0, False)),
        (0.0, True, False, (0.0, False)),
        (0.1, False, True, (0.1, False)),
    ],
)
def test_a_search_leaves_out_what_the_package_s_times_vouch_for(
    until: float | None, covered: bool, bounded: bool, expected: tuple[float, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_costs, "shipped_samples", lambda isa, threads: SHIPPED)
    monkeypatch.setattr(layer_costs, "shipped_guide", lambda isa, threads: None)
    monkeypatch.setattr(layer_costs, "is_covered", lambda variants, samples: covered)
    monkeypatch.setattr(layer_costs, "SearchRun", FakeSearch)
    imported: Any = SimpleNamespace(graph=SimpleNamespace(all_layers=tuple, layers=(), calls=()))
    tuner = fake_tuner(host().key, Target.create("cpu"))
    tuner.is_bounded = bounded
    layer_costs._measured(imported, [], tuner, (), until)
    settings = FakeSearch.given[3]
    assert (settings.until, settings.whole_rounds) == expected


@pytest.mark.parametrize(
    ("known", "device", "search", "expected"),
    [
        ([], "cpu", Search.MODEL, True),
        (["a measurement"], "cpu", Search.MODEL, False),
        (["a measurement"] * FEWEST_SAMPLES, "cpu", Search.MODEL, False),
        ([], "vulkan", Search.MODEL, False),
        ([], "cpu", Search.FULL, False),
    ],
)
def test_what_a_search_needs_is_loaded_where_one_will_come(
    monkeypatch: pytest.MonkeyPatch, known: list[str], device: str, search: Search, expected: bool
) -> None:
    loaded: list[bool] = []
    monkeypatch.setattr(layer_costs, "load_ahead", lambda _, trains: loaded.append(trains))
    store: Any = SimpleNamespace(measurements=lambda here_only: iter(known), hardware=host().key)
    layer_costs.load_search(store, Target.create(device), search)
    assert loaded == [True] * expected
    layer_costs.load_search(store, Target.create(device), search, predicts=True, measures=False)
    is_trained = len(known) == FEWEST_SAMPLES
    assert loaded[expected:] == [is_trained] * (device == "cpu")
    loaded.clear()
    layer_costs.load_search(store, Target.create(device), search, until=None)
    assert loaded == [False] * expected


@pytest.mark.parametrize(("architecture", "searches"), [("llvmpipe", False), ("ampere", True), ("rdna3", True)])
def test_only_a_software_driver_is_spared_a_search(
    architecture: str, searches: bool, imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mesa compiles each kernel for half a second; drivers of GPUs do not, and tilings decide more there."""
    given: list[tuple[Any, Any]] = []

    def measured(imported: Any, cases: Any, tuner: Any, pins: Any, *_: Any, predicts: bool) -> dict[str, Any]:
        given.append((cases, pins))
        return {}

    monkeypatch.setattr(layer_costs, "_measured", measured)
    config, imported = CompileConfig(target=Target.create("vulkan", architecture)), imported_of("residual")
    found = find_candidates(imported, config.planning, everything=False)
    tune(imported, found, fake_tuner("another machine", config.target), config.planning)
    ((cases, pins),) = given
    assert pins == (() if searches else None)
    most = max(count for case in cases for count in Counter(each.routine for each in case.variants).values())
    assert (most > 2) == searches


def test_what_another_plan_s_forms_need_is_measured_behind_a_search(
    imported_of: Callable[[str], ImportedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, imported = CompileConfig(target=Target.create("cpu")), imported_of("residual")
    found = find_candidates(imported, config.planning, everything=False)
    layer = next(layer for layer in imported.graph.layers if layer.weights)
    key, (first, *others) = layer.task.key, found.variants[layer.task.key]
    form = others[-1].implementation.packings[0]
    known: Any = {each: {listed[0].descriptor: "searched"} for each, listed in found.variants.items()}
    monkeypatch.setattr(layer_costs, "_measured", lambda *_, **__: known)
    monkeypatch.setattr(layer_costs, "peak_operations", lambda *_: None)
    tuner = fake_tuner("another machine", config.target)
    tuner.measure = lambda cases: {case.key: {each.descriptor: "behind" for each in case.variants} for case in cases}
    tables = tune(imported, found, tuner, config.planning, forms={layer.weights[0]: form})
    expected = {each.descriptor for each in others if each.implementation.packings[0] == form}
    assert form != first.implementation.packings[0]
    assert {name for name, each in tables.measured[key].items() if str(each) == "behind"} >= expected
    assert tables.measured[key].keys() == {first.descriptor, *expected}
    tuner.is_late = True
    assert tune(imported, found, tuner, config.planning, forms={layer.weights[0]: form}).measured == known


@pytest.mark.parametrize("search", list(Search))
@pytest.mark.parametrize("target", [Target.create("cuda", "sm_80"), Target.create("vulkan", "ampere")], ids=str)
def test_a_spent_time_budget_leaves_guesses_by_the_gpus_models(
    target: Target, search: Search, imported_of: Callable[[str], ImportedModel], tmp_path: Path
) -> None:
    config, imported = CompileConfig(target=target), imported_of("residual")
    found = find_candidates(imported, config.planning, everything=False)
    with Store.in_memory() as store, WorkerPool(1) as pool:
        tuner = make_tuner(store, pool, config.target, silent, tmp_path, deadline=time.monotonic() - 1)
        tables = tune(imported, found, tuner, config.planning, search)
        assert not [*store.measurements()]
    names = {each for listed in tables.variants.values() for each in (one.routine for one in listed)}
    assert names & {"implicit", "direct"}
    for key, variants in tables.variants.items():
        times = [tables.seconds(key, each.descriptor) for each in variants]
        assert all(each is not None and 0 < each < 1 for each in times)


def test_what_takes_longest_comes_first_with_one_variant_of_each_routine(
    imported_of: Callable[[str], ImportedModel],
) -> None:
    target = Target.create("cuda", "sm_80")
    imported = imported_of("residual")
    found = find_candidates(imported, CompileConfig(target=target).planning, everything=False)
    cases = tuned_cases(imported.graph, found.variants)
    last = cases[-1].key
    ordered = in_order(cases, {each.key: 1000 if each.key == last else 1 for each in cases}, core_of(target))
    assert ordered[0].key == last
    assert {each.key for each in ordered} == {each.key for each in cases}
    for case, first in zip(cases, first_guesses(cases), strict=True):
        assert first.variants[0] == case.variants[0]
        routines = [(each.routine, each.dtype) for each in first.variants]
        assert sorted(set(routines)) == sorted(routines)
        assert set(routines) == {(each.routine, each.dtype) for each in case.variants}
    assert core_of(target) != WIDE

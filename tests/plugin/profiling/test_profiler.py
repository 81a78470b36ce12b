"""Layers of several plans timed in place, by a runner that says what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.profiling.builder import Build, Builder
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiled, Profiler
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.cost_tables.in_network import InNetworkTimes, Symbols
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.networks.profile_job import FirstSamples, NetRun
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, selector, tables_of

SECONDS = 1e-3


@dataclass
class FakeRunner:
    """Every dispatch takes as long as is said of the next network; what fails is left out."""

    seconds: list[float]
    budget: ErrorBudget
    fails: list[Build] = field(default_factory=list)
    passes: int = 3
    criterion: str = ""
    verifies: bool = False
    asked: list[int] = field(default_factory=list)
    by_threads: dict[str, dict[int, float]] = field(default_factory=dict)
    threaded: list[tuple[int, ...]] = field(default_factory=list)
    runs: list[dict[str, float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    profiled: int = 0
    firsts: dict[str, FirstSamples] = field(default_factory=dict)
    timed_first: int = 0

    def first(self, builds: Sequence[Build]) -> dict[str, FirstSamples]:
        self.timed_first += 1
        return {build.digest: self.firsts[build.digest] for build in builds}

    def with_threads(self, build: Build, counts: Sequence[int]) -> dict[int, tuple[float, ...]]:
        self.threaded.append(tuple(counts))
        if build in self.fails:
            raise DeviceError("no device")
        return {count: (self.by_threads[build.digest][count],) for count in counts}

    def begin(self) -> None:
        """The reference is not needed."""

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        self.profiled += 1
        taken = self.runs.pop(0) if self.runs else {build.digest: SECONDS for build in builds}
        error = self.errors.pop(0) if self.errors else 0.0
        return {build.digest: NetRun(Status.OK, (taken[build.digest],), error, memory=1) for build in builds}

    def dispatches(self, builds: Sequence[tuple[Build, float]], passes: int) -> dict[str, list[list[Dispatch]]]:
        assert passes == self.passes
        self.asked.append(len(builds))
        found = {}
        for (build, _), seconds in zip(builds, self.seconds, strict=True):
            names = Symbols.of(build.recipe.graph, build.recipe.variants, "cpu").names
            if build not in self.fails:
                found[build.digest] = [[Dispatch(f"{name}_kernel", 1, seconds) for name in names]]
        return found


@dataclass
class FakeBuilder:
    """Builds what it is told to."""

    imported: object
    builds: list[Build]
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))
    doubted: int = 0

    def forget(self, _: Recipe) -> bool:
        self.doubted += 1
        return self.doubted == 1

    def build(self, recipes: Sequence[Recipe]) -> list[Build]:
        found = [build for build in self.builds if any(build.digest == recipe.digest for recipe in recipes)]
        if not found:
            raise CompileError("no plan compiles")
        return found


@dataclass
class Setting:
    profiler: Profiler
    runner: FakeRunner
    builds: list[Build]

    @property
    def recipes(self) -> list[Recipe]:
        return [build.recipe for build in self.builds]


@pytest.fixture
def setting(imported_of: ImportedOf, tmp_path: Path) -> Setting:
    """Two plans of one network in different types, which ran."""
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes = []
    for first in ("bf16", "f32"):
        alone = by_type(**{"f32": 0.2, "bf16": 0.2, first: 0.1})
        (best, *_), _ = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
        recipes.append(best)
    builds = [Build(each, NetFiles(tmp_path / "none", None)) for each in recipes]
    builder = FakeBuilder(select.imported, list(builds))
    store = Store.open(tmp_path / "tuning.db")
    runner = FakeRunner([SECONDS, 3 * SECONDS], select.budget)
    profiler = Profiler(store, cast(Builder, builder), cast(NetRunner, runner), select.policy)
    for recipe in recipes:
        store.put(Measurement(profiler._records.key(recipe), Status.OK, (SECONDS,)))
    return Setting(profiler, runner, builds)


def first_layer(recipe: Recipe) -> tuple[str, str]:
    layer = recipe.graph.layers[0]
    return layer.task.key, recipe.variants[layer.name].descriptor


@pytest.mark.parametrize(("is_quiet", "loads"), [(True, [0.5, 0.0]), (False, [0.5])])
def test_runs_beside_other_programs_are_repeated_once_it_is_quiet(
    is_quiet: bool, loads: list[float], setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = WorkerPool(1)
    others = iter([0.9, 0.0])
    monkeypatch.setattr(pool, "take_others", lambda: next(others))
    monkeypatch.setattr(pool, "is_quiet", lambda: is_quiet)
    setting.profiler._builder.pool = pool
    first = setting.recipes[0]
    key = setting.profiler._records.key(first)
    setting.profiler._store.put(Measurement(key, Status.OK, (SECONDS,), packed_bytes=1, foreign_load=0.5))
    for _ in range(2):
        setting.profiler.run(setting.recipes)
    found = setting.profiler.run_of(first)
    assert found is not None
    assert found.foreign_load == loads[-1]
    assert setting.runner.profiled == len(loads) - 1


def test_a_wrong_plan_is_built_again_without_what_is_kept(setting: Setting) -> None:
    first, second = setting.recipes
    for errors, status in (([1.0, 0.0], Status.OK), ([1.0, 1.0], Status.WRONG_RESULT)):
        setting.runner.errors[:] = errors
        cast(FakeBuilder, setting.profiler._builder).doubted = 0
        setting.runner.profiled = 0
        setting.profiler._measure([first, second])
        run = setting.profiler.run_of(first)
        assert run is not None
        assert run.status is status
        assert setting.runner.profiled == 2


def test_by_another_measure_a_relative_error_is_no_defect(setting: Setting) -> None:
    """What a network of 8 bits has of it on one sample is more than a cosine may differ."""
    setting.runner.budget = replace(setting.runner.budget, measure=ErrorMeasure(MeasureKind.COSINE))
    setting.runner.errors[:] = [0.05, 0.05]
    setting.profiler._measure(setting.recipes)
    assert setting.runner.profiled == 1


def in_network(setting: Setting, recipes: Sequence[Recipe]) -> InNetworkTimes:
    """Mean times in networks, in each of which the first layer is another variant."""
    return InNetworkTimes.mean([*setting.profiler.in_network(recipes, setting.runner.passes).values()])


def test_plans_are_timed_together_and_remembered(setting: Setting) -> None:
    found = in_network(setting, setting.recipes)
    times = [found.layers[first_layer(recipe)] for recipe in setting.recipes]
    assert times == pytest.approx([SECONDS, 3 * SECONDS])
    assert in_network(setting, setting.recipes) == found
    assert setting.runner.asked == [2]


def test_beside_others_a_plan_is_timed_anew(setting: Setting) -> None:
    setting.runner.seconds = [SECONDS]
    in_network(setting, setting.recipes[:1])
    setting.runner.seconds = [2 * SECONDS, 2 * SECONDS]
    found = in_network(setting, setting.recipes)
    assert found.layers[first_layer(setting.recipes[0])] == pytest.approx(2 * SECONDS)
    again = in_network(setting, setting.recipes[:1])
    assert again.layers[first_layer(setting.recipes[0])] == pytest.approx(SECONDS)
    assert setting.runner.asked == [1, 2]


def test_in_fewer_processes_it_is_another_measurement(setting: Setting) -> None:
    for setting.runner.passes in (3, 1):
        in_network(setting, setting.recipes)
    assert setting.runner.asked == [2, 2]


def test_a_plan_that_fails_leaves_the_others(setting: Setting) -> None:
    setting.runner.fails = setting.builds[:1]
    found = in_network(setting, setting.recipes)
    assert first_layer(setting.recipes[0]) not in found.layers
    assert found.layers[first_layer(setting.recipes[1])] == pytest.approx(3 * SECONDS)


def test_a_plan_that_does_not_compile_any_more_leaves_the_others(setting: Setting) -> None:
    del setting.profiler._builder.builds[0]  # type: ignore[attr-defined]
    setting.runner.seconds = [SECONDS]
    found = in_network(setting, setting.recipes)
    assert first_layer(setting.recipes[1]) in found.layers
    assert setting.runner.asked == [1]


def test_what_a_published_file_showed_counts_even_where_nothing_is_kept(setting: Setting) -> None:
    profiler, (recipe, other) = setting.profiler, setting.recipes
    profiler.contradict(recipe, NetRun(Status.WRONG_RESULT, error=0.6, message="wrong"))
    found = profiler.run_of(recipe)
    assert found is not None
    assert (found.status, found.error) == (Status.WRONG_RESULT, 0.6)
    assert profiler.profile(setting.recipes).recipe is other


def test_a_disturbed_check_is_no_verdict(setting: Setting) -> None:
    recipe = setting.recipes[0]
    with pytest.raises(DisturbedError, match="try again"):
        setting.profiler.contradict(recipe, NetRun(Status.CRASHED, message="write: No space left on device"))
    found = setting.profiler.run_of(recipe)
    assert found is not None
    assert found.status is Status.OK


def threaded(
    setting: Setting, threads: int, *by_threads: dict[int, float], seconds: float = SECONDS, most: int = 0
) -> Profiler:
    """A profiler for several threads, with times of the two plans by the number of threads."""
    old = setting.profiler
    policy = replace(old._policy, target=replace(old._policy.target, threads=threads), most_threads=most)
    profiler = Profiler(old._store, old._builder, old._runner, policy)
    for recipe, known in zip(setting.recipes, by_threads, strict=True):
        old._store.put(Measurement(profiler._records.key(recipe), Status.OK, (seconds,)))
        setting.runner.by_threads[recipe.digest] = known
    return profiler


def test_another_plan_may_be_faster_with_fewer_threads(setting: Setting) -> None:
    profiler = threaded(setting, 2, {1: 9e-4, 2: 1e-3}, {1: 5e-4, 2: 1e-3})
    best = profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, 2.0), setting.recipes)
    assert best.recipe.is_same_as(setting.recipes[1])
    assert (best.by_threads, best.baseline) == ({1: 5e-4, 2: 1e-3}, 2.0)
    assert setting.runner.threaded == [(1, 2)] * 2
    again = profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, 2.0), setting.recipes)
    assert again == best
    assert len(setting.runner.threaded) == 2, "times are stored"


@pytest.mark.parametrize(("threads", "seconds", "counts"), [(2, 1e-3, (1, 2, 6)), (2, 1.0, (2, 6)), (1, 1.0, (1, 6))])
def test_efficiency_cores_are_tried_however_long_an_inference_takes(
    setting: Setting, threads: int, seconds: float, counts: tuple[int, ...]
) -> None:
    all_times = {1: 1.0, 2: 0.9, 6: 0.5}
    profiler = threaded(setting, threads, all_times, all_times, seconds=seconds, most=6)
    best = profiler.with_best_threads(Profiled(setting.recipes[0], seconds, None, None), setting.recipes)
    assert best.recipe is setting.recipes[0]
    assert best.by_threads == {count: all_times[count] for count in counts}


def test_times_beside_other_programs_are_stored_as_such(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = threaded(setting, 2, {1: 9e-4, 2: 1e-3}, {1: 5e-4, 2: 1e-3})
    monkeypatch.setattr(profiler._builder.pool, "take_others", lambda: 0.7)
    profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, 2.0), setting.recipes)
    profiler.in_network(setting.recipes, setting.runner.passes)
    found = [
        measurement
        for measurement in profiler._store.measurements()
        if len(measurement.samples) and measurement.foreign_load == 0.7
    ]
    assert len(found) == 2 * 2 + 2, "each plan with one and two threads, and each in the network"


def test_all_times_beside_other_programs_are_taken_again_once_it_is_quiet(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each only once: a third compilation, whose machine is as quiet, takes those of the second."""
    old, others = setting.profiler, [0.7]
    monkeypatch.setattr(old._builder.pool, "take_others", lambda: others[-1])
    monkeypatch.setattr(old._builder.pool, "is_quiet", lambda: others[-1] == 0.0)
    counts = []
    for load in (0.7, 0.7, 0.0, 0.0):
        others.append(load)
        profiler = threaded(setting, 2, {1: 9e-4, 2: 1e-3}, {1: 5e-4, 2: 1e-3})
        profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, 2.0), setting.recipes)
        profiler.in_network(setting.recipes, setting.runner.passes)
        counts.append((len(setting.runner.threaded), len(setting.runner.asked)))
    assert counts == [(2, 1), (2, 1), (4, 2), (4, 2)]
    assert not any(measurement.foreign_load for measurement in old._store.measurements())


@pytest.mark.parametrize(("in_memory", "chosen"), [((2.0, 1.0), 1), ((1.1, 1.0), 0)])
def test_first_inferences_count_with_and_without_the_file_in_memory(
    setting: Setting, in_memory: tuple[float, float], chosen: int
) -> None:
    old = setting.profiler
    profiler = Profiler(old._store, old._builder, old._runner, replace(old._policy, objective=Objective.COLD))
    dropped = (1.0, 1.2)
    setting.runner.firsts = {
        recipe.digest: FirstSamples((dropped[index],), (in_memory[index],))
        for index, recipe in enumerate(setting.recipes)
    }
    for _ in range(2):
        best = profiler.profile(setting.recipes)
        assert best.recipe.is_same_as(setting.recipes[chosen])
        assert best.first == dropped[chosen]
    assert setting.runner.timed_first == 1, "times are stored"


def test_a_plan_keeps_its_place_beside_one_that_is_hardly_faster_with_fewer_threads(setting: Setting) -> None:
    profiler = threaded(setting, 6, {1: 9e-4, 2: 8e-4, 4: 7e-4, 6: 1e-3}, {1: 6.8e-4, 2: 1e-3, 4: 1e-3, 6: 1e-3})
    best = profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, None), setting.recipes)
    assert best.recipe is setting.recipes[0]
    assert best.by_threads == {1: 9e-4, 2: 8e-4, 4: 7e-4, 6: 1e-3}


@pytest.mark.parametrize(("unsplit", "taken"), [(True, True), (False, False)])
def test_the_stock_model_ships_if_it_is_faster_with_fewer_threads_by_however_little(
    setting: Setting, unsplit: bool, taken: bool
) -> None:
    """Another plan may be so by chance, but nothing ships that ran slower than the stock model."""
    recipe = setting.recipes[1]
    stock = replace(setting.builds[1], recipe=replace(recipe, plan=replace(recipe.plan, unsplit=unsplit)))
    setting.builds[1] = stock
    setting.profiler._builder.builds[1] = stock  # type: ignore[attr-defined]
    profiler = threaded(setting, 2, {1: 7e-4, 2: 1e-3}, {1: 6.9e-4, 2: 1e-3})
    best = profiler.with_best_threads(Profiled(setting.recipes[0], SECONDS, None, 8e-4), setting.recipes)
    assert (best.recipe is stock.recipe) == taken
    assert best.baseline == (6.9e-4 if unsplit else 8e-4)


@pytest.mark.parametrize(("threads", "seconds"), [(1, SECONDS), (2, 1.0)])
def test_threads_do_not_matter_for_one_thread_and_for_long_inferences(
    setting: Setting, threads: int, seconds: float
) -> None:
    profiler = threaded(setting, threads, {}, {}, seconds=seconds)
    given = Profiled(setting.recipes[0], seconds, None, None)
    assert profiler.with_best_threads(given, setting.recipes) == given
    assert setting.runner.threaded == []


def test_a_plan_that_does_not_run_with_other_threads_stays_as_it_is(setting: Setting) -> None:
    setting.runner.fails = setting.builds
    profiler = threaded(setting, 2, {}, {})
    given = Profiled(setting.recipes[0], SECONDS, None, None)
    assert profiler.with_best_threads(given, setting.recipes) == given


def test_a_second_compilation_sees_the_times_that_each_comparison_had(setting: Setting, tmp_path: Path) -> None:
    first, other = setting.recipes
    old = setting.profiler
    store = Store.open(tmp_path / "other.db")
    setting.runner.runs = [{first.digest: 1e-3}, {first.digest: 3e-3, other.digest: 2e-3}]
    for again in (False, True):
        profiler = Profiler(store, old._builder, old._runner, old._policy)
        best = profiler.profile([first])
        assert (best.recipe, best.seconds) == (first, 1e-3)
        best = profiler.profile([first, other])
        assert (best.recipe, best.seconds) == (other, 2e-3)
        assert setting.runner.runs == [], f"measured again: {again}"
    profiler.contradict(other, NetRun(Status.WRONG_RESULT, error=1.0))
    assert profiler.profile([first, other]).recipe is first
    later = Profiler(store, old._builder, old._runner, old._policy)
    assert later.profile([first, other]).recipe is first

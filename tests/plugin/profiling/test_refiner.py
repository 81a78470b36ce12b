"""Selecting again by times in place, with a profiler that says what a test says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, LateError, SartorError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import Selected
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import PlanErrors
from sartor.policies import Precision
from sartor.profiling.profiler import Profiled, Profiler
from sartor.profiling.refiner import Refiner
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits
from sartor.tuning.selection.programming.infeasible import LimitError
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, measurement, selector, tables_of, type_of, types

UNIT = 1e-4


@dataclass
class FakeProfiler:
    """Profiler with computed times: the sum over the layers, plus a cost for each additional type.

    Attributes:
        seconds: function of task and descriptor that returns a layer's time in the network, in seconds.
        mixing: seconds added for each type after the first.
        ran: all recipes that were run, in order.
        timed: all recipes whose layers were timed in the network.
        asked: the number of recipes in each of these measurements, and in how many processes they ran.
        passes: number of processes in which networks to compare run.
        error: function that returns a recipe's error; None if runs have no error.
        allowed: largest error of a correct run.
        build_seconds: of a network.
        by_threads: seconds of every network by number of threads.
        times_dispatches: whether plans are selected again by times of layers in the network.
        shipped: whether layers of the shipped plan are timed if plans are not selected again.
    """

    seconds: Callable[[str, str], float]
    mixing: float = 0.0
    ran: list[Recipe] = field(default_factory=list)
    timed: list[Recipe] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    passes: int = 3
    error: Callable[[Recipe], float] | None = None
    allowed: float = math.inf
    build_seconds: float | None = None
    by_threads: dict[int, float] = field(default_factory=dict)
    times_dispatches: bool = True
    shipped: bool = False

    def times_shipped(self, recipe: Recipe) -> bool:
        assert self.run_of(recipe) is not None, "only what ran has layers to time"
        return self.times_dispatches or self.shipped

    def run(self, recipes: Sequence[Recipe]) -> None:
        self.ran.extend(each for each in recipes if not any(each.is_same_as(other) for other in self.ran))

    def run_of(self, recipe: Recipe) -> Measurement | None:
        if not any(recipe.is_same_as(each) for each in self.ran):
            return None
        seconds = sum(self._in_network(recipe).layers.values()) + self._mixing(recipe)
        if self.error is None:
            return measurement("net", seconds)
        error = self.error(recipe)
        status = Status.OK if error <= self.allowed else Status.WRONG_RESULT
        return replace(measurement("net", seconds), error=error, status=status)

    def profile(self, recipes: Sequence[Recipe]) -> Profiled:
        self.run(recipes)
        found = [(self.run_of(recipe), recipe) for recipe in recipes]
        runs = [(run.time, recipe) for run, recipe in found if run is not None and run.status is Status.OK]
        seconds, best = min(runs, key=lambda pair: pair[0])
        return Profiled(best, seconds, error=None, baseline=None)

    def verify(self, recipe: Recipe) -> bool:
        return True

    def in_network(self, recipes: Sequence[Recipe], passes: int) -> dict[str, InNetworkTimes]:
        self.timed.extend(recipes)
        self.asked.append((len(recipes), passes))
        return {each.digest: self._in_network(each) for each in recipes}

    def with_best_threads(self, best: Profiled, recipes: Sequence[Recipe]) -> Profiled:
        return replace(best, by_threads=self.by_threads)

    def _in_network(self, recipe: Recipe) -> InNetworkTimes:
        chosen = [(each.task.key, recipe.variants[each.name].descriptor) for each in recipe.graph.layers]
        return InNetworkTimes({each: self.seconds(*each) for each in chosen})

    def _mixing(self, recipe: Recipe) -> float:
        return self.mixing * (len(types(recipe)) - 1)


def refined(
    imported_of: ImportedOf, alone: Callable[[str, str], float], profiler: FakeProfiler, *narrow: str
) -> tuple[set[str], FakeProfiler]:
    """The types of the plan that is shipped."""
    precision = Precision.MIXED if narrow else Precision.F32
    select = selector(imported_of("residual"), FakeTuner(), precision)
    recipes, tables = select.select(tables_of(select.imported, alone, *narrow), UNLIMITED)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert found.plan.measured == found.profiled.seconds
    return types(found.recipe), profiler


def first_task(imported_of: ImportedOf) -> str:
    return imported_of("residual").graph.layers[0].task.key


def test_a_plan_that_takes_what_was_predicted_is_shipped(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    shipped, profiler = refined(imported_of, alone, FakeProfiler(alone), "bf16")
    assert shipped == {"bf16"}
    assert len(profiler.ran) == 1
    assert profiler.asked == [(1, 1)]


@dataclass
class UntimedProfiler(FakeProfiler):
    """One whose worker dies where layers are timed in place."""

    def in_network(self, recipes: Sequence[Recipe], passes: int) -> dict[str, InNetworkTimes]:
        raise CompileError("timing layers in the network ended as killed")


def test_a_plan_ships_where_its_layers_cannot_be_timed_in_place(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    assert refined(imported_of, alone, UntimedProfiler(alone), "bf16")[0] == {"bf16"}


@dataclass
class BreakingProfiler(FakeProfiler):
    """One in which plans in one type do not compile."""

    broken: str = ""

    def run_of(self, recipe: Recipe) -> Measurement | None:
        run = super().run_of(recipe)
        if run is None or types(recipe) != {self.broken}:
            return run
        return replace(run, status=Status.COMPILE_FAILED, message="IREE rejected the module\nsee there")


@pytest.mark.parametrize("broken", ["bf16", "none"])
def test_a_selected_plan_that_does_not_compile_is_named(
    imported_of: ImportedOf, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    exact = tables_of(select.imported, by_type(f32=UNIT))
    (other, *_), _ = select.select(exact, UNLIMITED)
    profiler = BreakingProfiler(alone, broken=broken)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, [recipes[0], other])
    said = "a selected plan is left out, as it ended as compile_failed: IREE rejected the module"
    assert [each.getMessage() for each in caplog.records if "left out" in each.getMessage()] == [said] * (
        broken == "bf16"
    )
    assert types(found.recipe) == ({"f32"} if broken == "bf16" else {"bf16"})


@pytest.mark.parametrize("is_stock", [True, False])
def test_a_wrong_plan_is_named_where_the_stock_model_ships(
    imported_of: ImportedOf, caplog: pytest.LogCaptureFixture, is_stock: bool
) -> None:
    """Another plan in its place is what narrowed types lead to; stock code may be far slower."""
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    (other, *_), _ = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    other = replace(other, plan=replace(other.plan, unsplit=is_stock))
    profiler = FakeProfiler(alone, error=lambda recipe: float(not recipe.is_same_as(other)), allowed=0.5)
    Refiner(cast(Profiler, profiler), select).refine(tables, [recipes[0], other])
    named = [record.getMessage() for record in caplog.records if "ended as wrong_result" in record.getMessage()]
    assert len(named) == is_stock


def test_a_plan_that_rounds_nothing_runs_where_none_that_rounds_is_right(
    imported_of: ImportedOf, caplog: pytest.LogCaptureFixture
) -> None:
    """The tables foresee no error of rounding, so that no tighter limit of it would select another plan."""
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    select.errors = PlanErrors(select.budget, lambda recipe, tables: 0.0, is_free=True)
    profiler = FakeProfiler(alone, error=lambda recipe: 0.11 if "bf16" in types(recipe) else 1e-7, allowed=1e-2)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert [types(each) for each in profiler.ran] == [{"bf16"}, {"f32"}]
    assert types(found.recipe) == {"f32"}
    assert "no selected plan that rounds is right" in caplog.text


def test_plans_that_round_only_what_costs_nothing_run_before_such_as_round_nothing(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    first, *others = (layer.name for layer in select.imported.graph.layers)
    tables = tables_of(select.imported, alone, "bf16")
    rounding = {(first, "bf16"): 1e-3} | {(name, "bf16"): 0.0 for name in others}
    recipes, tables = select.select(replace(tables, rounding=rounding), UNLIMITED)
    select.errors = PlanErrors(select.budget, lambda recipe, tables: 0.0, is_free=True)
    profiler = BreakingProfiler(alone, broken="bf16")
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert [types(recipe) for recipe in profiler.ran] == [{"bf16"}, {"bf16", "f32"}, {"f32"}]
    assert found.recipe.is_same_as(profiler.ran[1])


def slow_in_network(imported_of: ImportedOf) -> tuple[Callable[[str, str], float], Callable[[str, str], float]]:
    """Return times alone and in the network: one bf16 routine per layer is fast, but slow in the network's layer 0."""
    imported, slow = imported_of("residual"), first_task(imported_of)
    variants = tables_of(imported, by_type(f32=1.0, bf16=1.0), "bf16").variants
    fast = {key: min(each.descriptor for each in found if each.dtype == "bf16") for key, found in variants.items()}

    def alone(key: str, descriptor: str) -> float:
        return UNIT * (1.0 if descriptor == fast[key] else by_type(f32=1.5, bf16=3.0)(key, descriptor))

    def in_network(key: str, descriptor: str) -> float:
        return 10 * UNIT if (key, descriptor) == (slow, fast[slow]) else alone(key, descriptor)

    return alone, in_network


def test_a_layer_that_is_slow_in_place_gets_another_routine(imported_of: ImportedOf) -> None:
    alone, in_network = slow_in_network(imported_of)
    shipped, profiler = refined(imported_of, alone, FakeProfiler(in_network), "bf16")
    assert types(profiler.ran[0]) == {"bf16"}
    assert shipped == {"f32", "bf16"}
    assert profiler.asked[:2] == [(1, 1), (1, profiler.passes)]


@dataclass
class DisturbedProfiler(FakeProfiler):
    """One whose first process is disturbed: a layer takes ten times as long in it as in the others."""

    def _in_network(self, recipe: Recipe) -> InNetworkTimes:
        found = super()._in_network(recipe)
        slow = recipe.graph.layers[0].task.key
        is_first = [passes for _, passes in self.asked] == [1]
        return InNetworkTimes(
            {key: seconds * (10 if is_first and key[0] == slow else 1) for key, seconds in found.layers.items()}
        )


def test_what_one_process_tells_alone_selects_no_plan(imported_of: ImportedOf) -> None:
    alone = by_type(f32=1.5 * UNIT, bf16=UNIT)
    profiler = DisturbedProfiler(alone)
    shipped, _ = refined(imported_of, alone, profiler, "bf16")
    assert shipped == {"bf16"}
    assert profiler.asked == [(1, 1), (1, profiler.passes)]
    assert len(profiler.ran) == 1


@dataclass
class DoubtfulProfiler(FakeProfiler):
    """One whose network takes less than its times of layers add up to."""

    def run_of(self, recipe: Recipe) -> Measurement | None:
        run = super().run_of(recipe)
        return None if run is None else measurement("net", UNIT * len(recipe.graph.layers))


def test_a_time_in_place_that_the_network_does_not_take_is_not_believed(imported_of: ImportedOf) -> None:
    alone, in_network = slow_in_network(imported_of)
    _, profiler = refined(imported_of, alone, DoubtfulProfiler(in_network), "bf16")
    assert {frozenset(types(each)) for each in profiler.ran} <= {frozenset({"bf16"}), frozenset({"f32"})}


@pytest.mark.parametrize("shipped", [False, True])
def test_where_timing_takes_long_only_the_shipped_plan_is_timed_in_place(
    imported_of: ImportedOf, shipped: bool
) -> None:
    """As on Vulkan: no plan is selected again, though a layer is slow."""
    alone, in_network = slow_in_network(imported_of)
    timing = FakeProfiler(in_network, times_dispatches=False, shipped=shipped)
    found, profiler = refined(imported_of, alone, timing, "bf16")
    assert len(profiler.ran) <= len({"bf16", "f32"})
    assert found == {"bf16"}
    assert [types(each) for each in profiler.timed] == [{"bf16"}] * shipped


def test_plans_in_one_type_are_selected_by_times_in_place_too(imported_of: ImportedOf) -> None:
    alone, in_network = slow_in_network(imported_of)
    shipped, profiler = refined(imported_of, alone, FakeProfiler(in_network, mixing=5 * UNIT), "bf16")
    assert [types(each) for each in profiler.ran[:3]] == [{"bf16"}, {"f32", "bf16"}, {"f32"}]
    assert shipped == {"f32"}


def test_what_was_run_and_lost_informs_the_next_selection(imported_of: ImportedOf) -> None:
    """Two plans each have slow layers; the refiner combines their fast ones."""
    slow = first_task(imported_of)

    def in_network(key: str, descriptor: str) -> float:
        return UNIT * (4 if (key == slow) == (type_of(descriptor) == "bf16") else 1)

    alone = by_type(f32=3 * UNIT, bf16=UNIT, f16=1.01 * UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    tables = tables_of(select.imported, alone, "bf16", "f16")
    first, tables = select.select(tables, UNLIMITED)
    profiler = FakeProfiler(in_network)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, first[:1])
    assert types(found.recipe) == {"bf16", "f16"}
    assert found.plan.predicted == pytest.approx(found.profiled.seconds, rel=0.1)


@dataclass
class LearningSelector(PlanSelector):
    """Selects only f32 while errors are expected to propagate fully to the outputs.

    Attributes:
        shown: propagated fraction after the first measured error.
        told: measured errors, in order.
    """

    shown: float = 0.5
    told: list[float] = field(default_factory=list)

    def select(self, tables: Tables, limits: Limits) -> Selected:
        if tables.propagated_fraction < 1:
            return super().select(tables, limits)
        exact = {
            key: {name: each for name, each in found.items() if type_of(name) == "f32"}
            for key, found in tables.measured.items()
        }
        recipes, _ = super().select(replace(tables, measured=exact), limits)
        return recipes, tables

    def fitted(self, tables: Tables, recipe: Recipe, measured: float) -> Tables:
        self.told.append(measured)
        return replace(tables, propagated_fraction=self.shown) if len(self.told) == 1 else tables


def learning(imported_of: ImportedOf, shown: float = 0.5) -> LearningSelector:
    found = selector(imported_of("residual"), FakeTuner(), Precision.BF16)
    return LearningSelector(found.solver, found.budget, shown=shown)


def test_a_plan_that_errs_less_than_expected_makes_way_for_a_faster_one(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = learning(imported_of)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    assert types(recipes[0]) == {"f32"}
    profiler = FakeProfiler(alone, error=lambda recipe: 1e-3)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert select.told[0] == 1e-3
    assert types(found.recipe) == {"bf16"}
    assert found.tables.propagated_fraction == 0.5


def test_with_no_time_left_nothing_is_learned(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = learning(imported_of)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    profiler = FakeProfiler(alone, error=lambda recipe: 1e-3)
    over = TimeBudget(1e-9)
    found = Refiner(cast(Profiler, profiler), select, over).refine(tables, recipes[:1])
    assert (types(found.recipe), select.told) == ({"f32"}, [])


@dataclass
class _LateProfiler(FakeProfiler):
    """Has time for one network."""

    def run(self, recipes: Sequence[Recipe]) -> None:
        if self.ran and any(self.run_of(each) is None for each in recipes):
            raise LateError("there was no time to compile it")
        super().run(recipes)


def test_where_there_is_no_time_to_compile_a_second_plan_the_first_ships(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = learning(imported_of)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    profiler = _LateProfiler(alone, error=lambda recipe: 1e-3)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert found.recipe.is_same_as(recipes[0])
    assert found.plan.measured == found.profiled.seconds


@pytest.mark.parametrize("shown", [1.0, 0.5])
def test_a_plan_that_errs_more_than_hoped_makes_way_for_a_more_exact_one(imported_of: ImportedOf, shown: float) -> None:
    """The next plan follows from the propagated fraction, or from tighter limits if that does not explain the error."""
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = learning(imported_of, shown)
    tables = tables_of(select.imported, alone, "bf16")
    rounding = {(each.name, "bf16"): 1e-3 for each in select.imported.graph.layers}
    recipes, tables = select.select(replace(tables, rounding=rounding, propagated_fraction=0.2), UNLIMITED)
    assert types(recipes[0]) == {"bf16"}

    def error(recipe: Recipe) -> float:
        return 0.012 if types(recipe) == {"bf16"} else 0.0

    profiler = FakeProfiler(alone, error=error, allowed=0.01)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert select.told[0] == 0.012
    assert types(found.recipe) == ({"f32"} if shown == 1.0 else {"f32", "bf16"})
    assert len(profiler.ran) > 1


def test_a_faster_plan_that_errs_too_much_leaves_the_first_to_be_refined(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = learning(imported_of)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    profiler = FakeProfiler(alone, error=lambda recipe: 0.1 if "bf16" in types(recipe) else 0.0, allowed=0.01)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])
    assert [types(each) for each in profiler.ran[:2]] == [{"f32"}, {"bf16"}]
    assert types(found.recipe) == {"f32"}
    assert any(each.is_same_as(recipes[0]) for each in profiler.timed)


@pytest.mark.parametrize(
    ("by_threads", "usual", "workers"),
    [
        ({}, 2, None),
        ({1: 2e-5, 2: 3e-5}, 2, 1),
        ({1: 3e-5, 2: 2e-5}, 2, None),
        ({1: 1.995e-5, 2: 2e-5}, 2, None),
        ({1: 5.0, 2: 3.0, 4: 4.0}, 4, 2),
        # With efficiency cores.
        ({2: 3.0, 6: 2.0}, 2, 6),
        ({2: 3.0, 6: 2.99}, 2, None),
        ({1: 2.0, 2: 1.0, 6: 3.0}, 2, None),
        ({1: 2.0, 2: 1.0}, 4, None),
    ],
)
def test_a_plan_says_with_which_threads_it_is_fastest(
    imported_of: ImportedOf, by_threads: dict[int, float], usual: int, workers: int | None
) -> None:
    alone = by_type(f32=UNIT)
    select = selector(imported_of("residual"), FakeTuner())
    recipes, tables = select.select(tables_of(select.imported, alone), UNLIMITED)
    policy = replace(select.policy, target=replace(select.policy.target, threads=usual))
    select = replace(select, solver=replace(select.solver, policy=policy))
    profiler = FakeProfiler(alone, by_threads=by_threads)
    found = Refiner(cast(Profiler, profiler), select).refine(tables, recipes)
    assert found.recipe.plan.workers == found.plan.workers == workers
    assert found.plan.measured == (by_threads[workers] if workers else found.profiled.seconds)
    assert dict(found.plan.by_threads) == by_threads
    assert (found.recipe.plan.by_threads, found.plan.unmeasured().workers) == ((), workers)


@dataclass
class WrongProfiler(FakeProfiler):
    """One in which plans in one type prove wrong, by ``profile`` as by ``run_of``."""

    wrong: str = ""
    refusal: SartorError = field(default_factory=lambda: CompileError("no network is right"))

    def profile(self, recipes: Sequence[Recipe]) -> Profiled:
        right = [each for each in recipes if types(each) != {self.wrong}]
        if not right:
            raise self.refusal
        return super().profile(right)


@pytest.mark.parametrize(("wrong", "shipped"), [("bf16", "f32"), ("none", "bf16")])
def test_the_reserve_runs_only_if_all_others_prove_wrong(imported_of: ImportedOf, wrong: str, shipped: str) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    (exact, *_), _ = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    profiler = WrongProfiler(alone, wrong=wrong)
    refiner = Refiner(cast(Profiler, profiler), select, reserve=(exact,), stock_estimate=1.0)
    found = refiner.refine(tables, recipes[:1])
    assert types(found.recipe) == {shipped}
    assert any(types(each) == {"f32"} for each in profiler.ran) == (shipped == "f32")


@pytest.mark.parametrize(("estimate", "is_built"), [(100 * UNIT, False), (2 * UNIT, True)])
def test_a_plan_that_takes_longer_than_predicted_brings_the_reserve_back(
    imported_of: ImportedOf, estimate: float, is_built: bool
) -> None:
    """By predictions the unsplit model was hopeless; the plan took as long as it is expected to take."""
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, by_type(f32=2 * UNIT, bf16=UNIT), "bf16"), UNLIMITED)
    (exact, *_), _ = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    profiler = WrongProfiler(by_type(f32=UNIT, bf16=8 * UNIT))
    refiner = Refiner(cast(Profiler, profiler), select, reserve=(exact,), stock_estimate=estimate)
    found = refiner.refine(tables, recipes[:1])
    assert (exact in found.tried) == is_built
    assert types(found.recipe) == ({"f32"} if is_built else {"bf16"})


def test_the_reserve_keeps_a_bound_that_no_plan_keeps(imported_of: ImportedOf) -> None:
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, by_type(f32=2 * UNIT, bf16=UNIT), "bf16"), UNLIMITED)
    (exact, *_), _ = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    profiler = WrongProfiler(by_type(f32=2 * UNIT, bf16=UNIT), wrong="bf16", refusal=LimitError("too inexact", {}))
    refiner = Refiner(cast(Profiler, profiler), select, reserve=(exact,), stock_estimate=100 * UNIT)
    assert types(refiner.refine(tables, recipes[:1]).recipe) == {"f32"}


def test_the_reserve_comes_after_a_file_that_proved_wrong(imported_of: ImportedOf) -> None:
    alone = by_type(f32=2 * UNIT, bf16=UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    (exact, *_), _ = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    profiler = WrongProfiler(alone)
    refiner = Refiner(cast(Profiler, profiler), select, reserve=(exact,))
    found = refiner.refine(tables, recipes[:1])
    profiler.wrong = "bf16"
    assert types(refiner.next_best(found).recipe) == {"f32"}


def test_without_a_reserve_the_error_is_told(imported_of: ImportedOf) -> None:
    alone = by_type(bf16=UNIT, f32=2 * UNIT)
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    recipes, tables = select.select(tables_of(select.imported, alone, "bf16"), UNLIMITED)
    profiler = WrongProfiler(alone, wrong="bf16")
    with pytest.raises(CompileError, match="no network is right"):
        Refiner(cast(Profiler, profiler), select).refine(tables, recipes[:1])

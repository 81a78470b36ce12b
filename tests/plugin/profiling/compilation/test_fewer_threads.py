"""Small networks: the plan that is the fastest with its number of threads, one of which is 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Build
from sartor.profiling.compilation import fewer_threads, thread_ways
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.fewer_threads import Entrant, seconds_in_turn, tune_with_best_threads
from sartor.profiling.compilation.thread_ways import Way, handing_seconds, saved_seconds, ways_of
from sartor.profiling.compilation.tuned_network import Floor, Tuned
from sartor.profiling.profiler import Profiled
from sartor.profiling.refinement import Refined
from sartor.progress import silent
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.store.store import Store
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, selector, tables_of

NOTHING: Any = None


@dataclass
class Runner:
    """Builds take as long as is said of their number of threads."""

    taken: dict[int, float] = field(default_factory=dict)
    criterion: str = ""
    asked: int = 0

    def beside(self, pairs: Sequence[tuple[Build, int]]) -> list[tuple[float, ...]]:
        self.asked += 1
        if not self.taken:
            raise DeviceError("no device")
        return [(self.taken[threads],) for _, threads in pairs]


@dataclass
class Case:
    """A network with two ways to plan it, and what was tuned."""

    usual: Way
    one: Way
    runner: Runner
    plans: dict[int, Tuned]
    tuned: list[tuple[int, Floor | None]] = field(default_factory=list)

    def entrants(self) -> list[Entrant]:
        return [Entrant(self.usual, self.plans[2]), Entrant(self.one, self.plans[1])]

    def ship(self) -> Tuned:
        return tune_with_best_threads(self.usual.network, self.usual.config, self.usual.bench, Path())


@pytest.fixture
def case(imported_of: ImportedOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """What is tuned for two threads has the name of two, and so on."""
    select = selector(imported_of("residual"), FakeTuner())
    (recipe, *_), tables = select.select(tables_of(select.imported, by_type(f32=1e-4)), UNLIMITED)
    runner = Runner()
    pool: Any = SimpleNamespace(take_others=lambda: 0.0, is_quiet=lambda: True)
    bench = Bench(pool, Path(), Store.open(tmp_path / "tuning.db"), TimeBudget(), silent)
    found = Candidacy(select.imported, NOTHING, NOTHING, NOTHING, NOTHING)
    usual, one = (Way(found, CompileConfig(threads=threads), bench) for threads in (2, 1))
    made = Case(usual, one, runner, {count: _tuned(recipe, tables, runner, pool) for count in (1, 2)})

    def tune(_: object, config: CompileConfig, *__: object, floor: Floor | None) -> Tuned:
        made.tuned.append((config.threads, floor))
        return made.plans[config.threads]

    monkeypatch.setattr(fewer_threads, "ways_of", lambda way: [way, one])
    monkeypatch.setattr(fewer_threads, "predicted_network", lambda _, config, *__, **___: _floor(made, config))
    monkeypatch.setattr(fewer_threads, "tune_network", tune)
    return made


def _tuned(recipe: Recipe, tables: Tables, runner: Any, pool: Any) -> Tuned:
    profiled = Profiled(recipe, 1e-3, None, None)
    refined = Refined(recipe, profiled, recipe.plan, tables, InNetworkTimes(), (recipe,))
    builder: Any = SimpleNamespace(
        pool=pool, build=lambda recipes: [Build(each, NetFiles(Path(), None)) for each in recipes]
    )
    return Tuned(refined, NOTHING, builder, runner, NOTHING)


def _floor(made: Case, config: CompileConfig) -> Floor:
    return Floor(made.plans[config.threads], 1.0)


@pytest.mark.parametrize(("seconds", "threads"), [((1.0, 1.5), 2), ((1.0, 0.5), 1), ((1.0, 1.0), 2)])
def test_the_network_is_tuned_for_the_faster(
    case: Case, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], threads: int
) -> None:
    monkeypatch.setattr(fewer_threads, "seconds_in_turn", lambda _: list(seconds))
    assert case.ship() is case.plans[threads]
    assert case.tuned == [(threads, Floor(case.plans[threads], 1.0))]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_with_one_way_runs_no_other_plan_before(
    case: Case, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    way = {1: case.one, 2: case.usual}[threads]
    monkeypatch.setattr(fewer_threads, "ways_of", lambda _: [way])
    assert case.ship() is case.plans[threads]
    assert case.tuned == [(threads, None)]


@pytest.mark.parametrize("wrong", [1, 2])
def test_where_one_predicted_plan_is_wrong_the_network_is_tuned_in_the_other_way(
    case: Case, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    def predicted(_: object, config: CompileConfig, *__: object, **___: object) -> Floor:
        if config.threads == wrong:
            raise CompileError("no plan is right")
        return _floor(case, config)

    monkeypatch.setattr(fewer_threads, "predicted_network", predicted)
    assert case.ship() is case.plans[3 - wrong]


def test_where_none_is_right_the_network_is_tuned_as_usual(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Floor:
        raise CompileError("no plan is right")

    monkeypatch.setattr(fewer_threads, "predicted_network", fails)
    assert case.ship() is case.plans[2]
    assert case.tuned == [(2, None)]


def test_a_disturbed_run_is_no_verdict(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(*_: object, **__: object) -> Floor:
        raise DisturbedError("try again")

    monkeypatch.setattr(fewer_threads, "predicted_network", disturbed)
    with pytest.raises(DisturbedError):
        case.ship()


def test_times_in_turn_are_stored(case: Case) -> None:
    case.runner.taken = {1: 1e-4, 2: 2e-4}
    assert seconds_in_turn(case.entrants()) == [2e-4, 1e-4]
    case.runner.taken = {1: 3e-4, 2: 3e-4}
    assert seconds_in_turn(case.entrants()) == [2e-4, 1e-4]
    assert seconds_in_turn(case.entrants()[::-1]) == [3e-4] * 2, "another turn"
    assert case.runner.asked == 2


def test_where_timing_fails_plans_count_as_they_ran(case: Case) -> None:
    assert seconds_in_turn(case.entrants()) == [1e-3, 1e-3]


ALL = Candidates({"all": ()}, ())


@pytest.fixture
def usual(imported_of: ImportedOf, monkeypatch: pytest.MonkeyPatch) -> Way:
    """A network of some layers, on a machine with two cores; nothing is asked about its layers."""
    monkeypatch.setattr("sartor.config.default_threads", lambda: 2)
    monkeypatch.setattr(thread_ways, "find_candidates", lambda *_, **__: ALL)
    monkeypatch.setattr(thread_ways, "foreseen", lambda *_: None)
    builder = SimpleNamespace(for_target=lambda target: target)
    begun: Any = SimpleNamespace(builder=builder, with_builder=lambda target: target)
    found = Candidacy(imported_of("residual"), NOTHING, NOTHING, NOTHING, begun)
    bench = Bench(NOTHING, Path(), NOTHING, TimeBudget(), silent)
    return Way(found, CompileConfig(threads=2), bench)


def saving(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """Let other threads save this part of what handing over takes."""
    monkeypatch.setattr(thread_ways, "saved_seconds", lambda graph, *_: part * handing_seconds(graph))


def test_more_threads_save_a_larger_part_of_what_layers_take(imported_of: ImportedOf) -> None:
    graph = imported_of("residual").graph
    assert saved_seconds(graph, WIDE, 1) == 0
    assert saved_seconds(graph, WIDE, 4) == pytest.approx(1.5 * saved_seconds(graph, WIDE, 2))
    twice = replace(graph, layers=graph.layers * 2)
    assert handing_seconds(twice) == 2 * handing_seconds(graph)
    assert saved_seconds(twice, WIDE, 2) == pytest.approx(2 * saved_seconds(graph, WIDE, 2))


@pytest.mark.parametrize(("part", "threads"), [(0.9, [2, 1]), (0.01, [2, 1]), (1.1, [2])])
def test_where_handing_over_may_take_longer_both_plans_are_predicted(
    usual: Way, monkeypatch: pytest.MonkeyPatch, part: float, threads: list[int]
) -> None:
    saving(monkeypatch, part)
    assert [way.threads for way in ways_of(usual)] == threads


@pytest.mark.parametrize(("part", "threads"), [(0.9, [2, 1]), (0.01, [1]), (1.1, [2])])
def test_without_time_one_plan_does_where_one_thread_is_faster_beyond_doubt(
    usual: Way, monkeypatch: pytest.MonkeyPatch, part: float, threads: list[int]
) -> None:
    saving(monkeypatch, part)
    hurried = replace(usual, bench=replace(usual.bench, time=TimeBudget.of(0.0)))
    assert [way.threads for way in ways_of(hurried)] == threads


def test_a_plan_for_one_thread_is_planned_as_such_and_says_so(usual: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    saving(monkeypatch, 0.5)
    first, one = ways_of(usual)
    assert (first.config, one.config.target.threads) == (usual.config, 1)
    begun: Any = one.network.begun
    assert begun == one.config.target, "its modules are built and run for one thread"
    assert (one.config.planning.workers, first.config.planning.workers) == (1, None)
    assert (one.is_narrow, one.with_all_variants.is_narrow, one.with_all_variants.network.candidates) == (
        True,
        False,
        ALL,
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"threads": 1},
        {"fixes_threads": True},
        {"threads": 3},
        {"memory_limit": "1GiB"},
        {"objective": "memory"},
        {"objective": "cold"},
    ],
)
def test_what_is_asked_for_counts(usual: Way, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    saving(monkeypatch, 0.0)
    given = replace(usual, config=replace(usual.config, **asked))
    assert ways_of(given) == [given]

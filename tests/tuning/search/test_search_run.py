"""A search that measures: rounds, what is remembered, and what happens when time is up."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.compile_job import CompiledCase
from sartor.tuning.measuring.measure_job import MeasureSettings, VariantSamples
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.search import search_run
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.found_so_far import FoundSoFar
from sartor.tuning.search.search_run import SEARCHED, SearchRun
from sartor.tuning.search.search_settings import INFORMED, SearchSettings
from sartor.tuning.store.store import Store
from sartor.tuning.store.tasks import task_results
from sartor.tuning.workers.pool import Job, JobResult, JobStatus, WorkerPool
from tests.tuning.search.searched_tasks import KERNELS, STOCK, VARIANTS, facts, listed, samples, seconds, task

SETTINGS = TuneSettings(Target.create("cpu"), MeasureSettings("cpu", 1, 1e-3))
TENSOR = TensorType((16,), "f32")
SCHEMA = Schema.plain(TENSOR, "cpu")


def variant(found: DescribedVariant) -> Variant:
    code = Implementation(found.descriptor, (SCHEMA,), (SCHEMA,), ())
    names = (found.descriptor, "cpu", found.dtype)
    return Variant(*names, code, found.traits, found.routine, tuple(found.parameters.items()))


def case(key: str, channels: int, side: int) -> BenchmarkCase:
    variants = tuple(variant(each) for each in listed(*VARIANTS))
    return BenchmarkCase(key, (TENSOR,), (), (TENSOR,), variants, facts(channels, side))


UNITS = [case(f"{channels}x{side}", channels, side) for channels in (64, 128, 512) for side in (14, 56)]
COUNTS = {unit.key: 1 for unit in UNITS}


class RulePool(WorkerPool):
    """Compiles nothing, and measures by the rule; each job takes a tenth of the time it says.

    Attributes:
        compiled: descriptors of all that was compiled.
    """

    def __init__(self, seconds_per_job: float = 0.0) -> None:
        super().__init__(1)
        self.compiled: list[tuple[str, str]] = []
        self._pause = seconds_per_job

    def map_unordered(  # type: ignore[override]
        self, function: str, jobs: list[Job], timeout: float, *, deadline: float | None = None, **_: Any
    ) -> Iterator[JobResult]:
        for job_id, arguments in jobs:
            if deadline is not None and time.monotonic() >= deadline:
                return
            time.sleep(self._pause)
            yield JobResult(job_id, JobStatus.OK, self._answer(arguments), "", 0.0)

    def _answer(self, arguments: Mapping[str, Any]) -> object:
        if "cases" in arguments:
            return [self._compiled(each) for each in arguments["cases"]]
        what = arguments["case"]
        return {
            each.descriptor: VariantSamples(Status.OK, (seconds(what.facts, each.descriptor),))
            for each in what.variants
        }

    def _compiled(self, what: BenchmarkCase) -> CompiledCase:
        names = [each.descriptor for each in what.variants]
        self.compiled += [(what.key, name) for name in names]
        return CompiledCase(dict.fromkeys(names, Path("module.vmfb")), {})


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.in_memory() as opened:
        yield opened


def run(store: Store, pool: WorkerPool, directory: Path, deadline: float | None = None) -> SearchRun:
    tuner = Tuner(store, pool, replace(SETTINGS, deadline=deadline), lambda *_: None, directory)
    return SearchRun(tuner, UNITS, COUNTS)


def test_every_task_has_candidate_0_and_some_kernels(store: Store, tmp_path: Path) -> None:
    measured = run(store, RulePool(), tmp_path).measured()
    assert set(measured) == set(COUNTS)
    for found in measured.values():
        assert STOCK in found
        assert set(found) & set(KERNELS)
    assert sum(map(len, measured.values())) < len(UNITS) * len(VARIANTS)


def test_nothing_is_compiled_twice(store: Store, tmp_path: Path) -> None:
    pool = RulePool()
    run(store, pool, tmp_path).measured()
    named = [each for each in pool.compiled if each[0] != "probe"]
    assert len(named) == len(set(named))


def test_a_search_that_ended_is_not_taken_up_again(store: Store, tmp_path: Path) -> None:
    measured = run(store, RulePool(), tmp_path).measured()
    pool = RulePool()
    assert run(store, pool, tmp_path).measured() == measured
    assert pool.compiled == []


class Neighbour(RulePool):
    """Another program takes processors while it measures.

    Attributes:
        is_there: whether it does.
    """

    def __init__(self, *, is_there: bool) -> None:
        super().__init__()
        self.is_there = is_there

    def is_quiet(self) -> bool:
        return not self.is_there

    def map_unordered(self, *given: Any, **options: Any) -> Iterator[JobResult]:
        load = 2.0 if self.is_there else 0.0
        for each in super().map_unordered(*given, **options):
            yield replace(each, others=load)


def test_a_search_beside_other_programs_is_made_again_once_it_is_quiet(store: Store, tmp_path: Path) -> None:
    beside = run(store, Neighbour(is_there=True), tmp_path).measured()
    busy, quiet, later = Neighbour(is_there=True), Neighbour(is_there=False), Neighbour(is_there=False)
    assert run(store, busy, tmp_path).measured() == beside
    assert busy.compiled == []
    again = run(store, quiet, tmp_path).measured()
    assert {key for key, _ in quiet.compiled} >= set(COUNTS)
    assert not any(each.foreign_load for found in again.values() for each in found.values() if _is_near(each, found))
    assert run(store, later, tmp_path).measured() == again
    assert later.compiled == []


class Burst(RulePool):
    """The fastest kernel of a task is disturbed when it is measured for the first time, and nobody says so.

    Attributes:
        disturbed: that kernel.
        times: how often it was measured.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disturbed = ""
        self.times = 0

    def _answer(self, arguments: Mapping[str, Any]) -> object:
        answer = super()._answer(arguments)
        if not isinstance(answer, dict) or arguments["case"].key != DISTURBED.key:
            return answer
        if not self.disturbed:
            kernels = [name for name in answer if name != STOCK]
            self.disturbed = min(kernels, key=lambda name: seconds(DISTURBED.facts, name))
            answer[self.disturbed] = VariantSamples(Status.OK, (8 * seconds(DISTURBED.facts, self.disturbed),))
        self.times += self.disturbed in answer
        return answer


DISTURBED = UNITS[1]
SHIPPED = samples(*(task(f"{channels}x{side}", channels, side) for channels in (32, 64, 256, 512) for side in (7, 28)))


@pytest.mark.parametrize(("shipped", "threads", "is_again"), [(SHIPPED, 1, True), (SHIPPED, 2, False), ((), 1, False)])
def test_what_contradicts_the_packages_times_is_measured_once_more(
    shipped: Sequence[Sample], threads: int, is_again: bool, store: Store, tmp_path: Path
) -> None:
    pool = Burst()
    settings = replace(INFORMED, rounds=1, share=0.0, threads=threads)
    measured = replace(run(store, pool, tmp_path), shipped=shipped, settings=settings).measured()
    found, right = measured[DISTURBED.key][pool.disturbed], seconds(DISTURBED.facts, pool.disturbed)
    assert pool.times == 1 + is_again
    assert found.time == pytest.approx(right if is_again else 8 * right)
    named = [each for each in pool.compiled if each[0] != "probe"]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(("until", "reaches"), [(0.5, "one"), (0.005, "some")])
def test_tasks_are_measured_while_that_promises_enough(
    until: float, reaches: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was predicted well for the first tasks is taken to be for the others; these have guesses, and stay open: to
    a search that leaves less out, and to one of another network, of which they may be a larger part."""
    monkeypatch.setattr(search_run, "_PORTION", 1)
    monkeypatch.setattr(search_run, "_AT_A_TIME", 1)
    shipped = samples(*(task(f"{channels}x{side}", channels, side) for channels in (64, 128, 512) for side in (7, 28)))
    search = run(store, RulePool(), tmp_path)
    told = FoundSoFar(UNITS, COUNTS)
    search = replace(search, shipped=shipped, settings=replace(INFORMED, rounds=0, until=until), found=told)
    measured = search.measured()
    assert told._foreseen is not None
    seconds, gain = told._foreseen
    assert 0 <= gain < until * seconds
    reached = [key for key, found in measured.items() if found]
    assert {1: "one", len(UNITS): "all"}.get(len(reached), "some") == reaches
    assert set(search.guessed(measured)) == set(COUNTS) - set(reached)
    assert search.measured() == measured
    left = next(key for key, found in measured.items() if not found)
    other = replace(search, counts={**COUNTS, left: 1000})
    assert bool(other.measured()[left]) == (reaches == "some")
    again = replace(search, settings=replace(INFORMED, rounds=0)).measured()
    assert all(again.values())


@pytest.mark.parametrize("stored", [VARIANTS[:-1], VARIANTS])
def test_what_is_stored_of_one_task_does_not_tell_what_the_others_promise(
    stored: Sequence[str], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another network has that task too, and all of its variants may have been measured for that one."""
    monkeypatch.setattr(search_run, "_PORTION", 3)
    monkeypatch.setattr(search_run, "_AT_A_TIME", 1)
    shared, *others = UNITS
    search = run(store, RulePool(), tmp_path)
    known = tuple(each for each in shared.variants if each.descriptor in stored)
    search.tuner.measure([replace(shared, variants=known)])
    measured = replace(search, shipped=SHIPPED, settings=replace(INFORMED, rounds=0, until=1.0)).measured()
    assert [bool(measured[each.key]) for each in others].count(True) >= 2


def test_rounds_that_are_whole_tell_of_each_task_before_a_search_ends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_run, "_PORTION", 1)
    monkeypatch.setattr(search_run, "_AT_A_TIME", 1)
    search = replace(run(store, RulePool(), tmp_path), shipped=SHIPPED)
    for whole_rounds in (False, True):
        settings = replace(INFORMED, rounds=2, until=1.0, whole_rounds=whole_rounds)
        assert all(replace(search, settings=settings).measured().values()) == whole_rounds


def _is_near(one: Measurement, found: Mapping[str, Measurement]) -> bool:
    """Whether a time is near the least of a task's."""
    return one.time <= 1.5 * min(each.time for each in found.values())


def test_the_end_of_a_search_is_no_measurement_of_the_task(store: Store, tmp_path: Path) -> None:
    run(store, RulePool(), tmp_path).measured()
    assert any(measurement.key.variant.endswith(SEARCHED) for measurement in store.measurements())
    names = {each.key.variant for result in task_results(store.measurements()) for each in result.variants}
    assert not any(name.endswith(SEARCHED) for name in names)


def test_a_search_that_was_cut_off_is_taken_up_again(store: Store, tmp_path: Path) -> None:
    late = run(store, RulePool(0.02), tmp_path, time.monotonic() + 0.3)
    partly = sum(map(len, late.measured().values()))
    pool = RulePool()
    assert sum(map(len, run(store, pool, tmp_path).measured().values())) > partly
    assert pool.compiled


def test_without_time_nothing_is_measured_and_all_is_guessed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BenchmarkCase, "packed_bytes", lambda _, variant: len(variant.descriptor))
    pool = RulePool()
    late = run(store, pool, tmp_path, time.monotonic() - 1.0)
    measured = late.measured()
    assert not any(measured.values())
    assert pool.compiled == []
    guessed = late.guessed(measured)
    for each in UNITS:
        times = {name: found.time for name, found in guessed[each.key].items()}
        assert set(times) == set(VARIANTS)
        assert min(times, key=times.__getitem__) in KERNELS
        assert {name: found.packed_bytes for name, found in guessed[each.key].items()} == {
            name: len(name) for name in VARIANTS
        }
    assert list(store.measurements()) == []


def test_what_other_tasks_took_makes_better_guesses(store: Store, tmp_path: Path) -> None:
    tuner = Tuner(store, RulePool(), SETTINGS, lambda *_: None, tmp_path)
    tuner.measure([replace(each, key=f"other {each.key}") for each in UNITS])
    late = run(store, RulePool(), tmp_path, time.monotonic() - 1.0)
    for each in UNITS:
        times = {name: found.time for name, found in late.guessed(late.measured())[each.key].items()}
        best = min(seconds(each.facts, name) for name in VARIANTS)
        assert seconds(each.facts, min(times, key=times.__getitem__)) < 1.15 * best


def test_what_was_measured_is_not_guessed(store: Store, tmp_path: Path) -> None:
    found = run(store, RulePool(), tmp_path)
    assert found.guessed(found.measured()) == {}


class TurningPool(RulePool):
    """Candidates 0 are found to be wrong in the second round of their task."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: dict[str, list[tuple[str, ...]]] = defaultdict(list)

    def _answer(self, arguments: Mapping[str, Any]) -> object:
        answer = super()._answer(arguments)
        if isinstance(answer, dict):
            key = arguments["case"].key
            self.measured[key].append(tuple(answer))
            if len(self.measured[key]) > 1:
                answer[STOCK] = VariantSamples(Status.WRONG_RESULT, message="candidate 0 is wrong")
        return answer


def test_what_was_right_beside_a_wrong_candidate_0_is_measured_again(store: Store, tmp_path: Path) -> None:
    others = Tuner(store, RulePool(), SETTINGS, lambda *_: None, tmp_path)
    others.measure([replace(each, key=f"other {each.key}") for each in UNITS])
    pool = TurningPool()
    eager = SearchSettings(share=2.0, gain=0.0, optimism=0.1)
    found = replace(run(store, pool, tmp_path), settings=eager).measured()
    turned = [key for key, listed in found.items() if listed[STOCK].status is Status.WRONG_RESULT]
    assert turned, "there was no second round"
    for key in turned:
        first, *_, last = pool.measured[key]
        assert set(first) <= set(last) == set(found[key])
    assert all(len(rounds) == 1 for key, rounds in pool.measured.items() if key not in turned)


def test_a_search_that_ended_under_another_bound_is_open_again(store: Store, tmp_path: Path) -> None:
    run(store, RulePool(), tmp_path).measured()
    lenient = replace(SETTINGS, measure=replace(SETTINGS.measure, max_error=0.1))
    for settings, is_open in ((SETTINGS, False), (lenient, True)):
        search = SearchRun(Tuner(store, RulePool(), settings, lambda *_: None), UNITS, COUNTS)
        known = search.tuner.known(UNITS)
        assert [search._is_open(case, known) for case in UNITS] == [is_open] * len(UNITS)

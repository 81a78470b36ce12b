"""What variants take longer when they run for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.variants.routine import Variant
from sartor.tuning.measuring.benchmark_case import PROBE
from sartor.tuning.measuring.compile_job import compile_cases
from sartor.tuning.measuring.first_runs import excess, first_runs
from sartor.tuning.measuring.runs import first_execution
from sartor.tuning.measuring.runs.first_execution import first_executions
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.measuring.test_tuner import ADD, SETTINGS, IdlePool, case, variant
from tests.tuning.store.bad_steps import AbortWhileMeasuring

CASE = case(variant("stock", ADD), variant("other", ADD.replace("%out", "%sum")))
KEY = MeasurementKey("task", "stock", "source", "hardware", 1, "runtime", "cpu")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as opened:
        yield opened


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [((5.0, 5.0, 9.0), (2.0, 2.0, 2.0), 3.0), ((1.0, 1.0), (2.0, 2.0), 0.0), ((4.0,), (1.5,), 2.5)],
)
def test_it_is_what_the_first_execution_took_beyond_later_ones(
    first: tuple[float, ...], later: tuple[float, ...], expected: float
) -> None:
    assert excess(Measurement(KEY, Status.OK, first, later)) == expected


def test_they_are_measured_once_and_are_no_times_of_later_executions(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path)
        found = first_runs([CASE], tuner, pool)
        assert found.keys() == {("task", "stock"), ("task", "other")}
        assert all(0 <= each < 1 for each in found.values())
        assert tuner.known([CASE])["task"] == {}
        idle = IdlePool(1)
        assert first_runs([CASE], Tuner(store, idle, SETTINGS, lambda *_: None, tmp_path), idle) == found


def test_they_are_measured_again_if_other_programs_computed(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.in_memory() as store, WorkerPool(1) as quiet:
        first_runs([CASE], Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path), pool)
        before = [*store.measurements()]
        store.put_many(replace(each, samples=(9.0,), baseline_samples=(1.0,), foreign_load=0.5) for each in before)
        quiet.is_quiet = lambda: True  # type: ignore[method-assign]
        found = first_runs([CASE], Tuner(store, quiet, SETTINGS, lambda *_: None, tmp_path), quiet)
        assert len(found) == 2
        assert all(each < 1 for each in found.values())


def test_what_crashes_is_missing(tmp_path: Path, pool: WorkerPool) -> None:
    crashing = case(variant("crash", ADD, AbortWhileMeasuring()), key="crashing")
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path)
        assert first_runs([crashing, CASE], tuner, pool).keys() == {("task", "stock"), ("task", "other")}


def test_each_first_execution_is_of_code_that_was_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted runner is slow in the first call of each program, the probe's as well; only the excess over the
    probe's counts."""
    loaded: list[str] = []

    class Planted:
        def __init__(self, of: object, variant: Variant, program: object, *_: object) -> None:
            self.name, self.calls = variant.descriptor, 0
            loaded.append(self.name)

        def run(self) -> None:
            self.calls += 1

    def seconds(runner: Planted) -> float:
        runner.run()
        first = {"stock": 5.0, "other": 2.0, "probe": 1.0}[runner.name]
        return first if runner.calls == 1 else 0.5

    monkeypatch.setattr(first_execution, "VariantRunner", Planted)
    monkeypatch.setattr(first_execution, "_seconds", seconds)
    target = SETTINGS.target
    (probe,) = compile_cases([PROBE], target, tmp_path)
    (compiled,) = compile_cases([CASE], target, tmp_path)
    found = first_executions(CASE, compiled.modules, next(iter(probe.modules.values())), "cpu", 1)
    assert found["stock"].first == (5.0,) * 5
    assert found["stock"].later == (0.5 + 0.5,) * 5
    assert found["other"].first == (2.0,) * 5
    assert loaded.count("stock") == loaded.count("other") == 5
    assert loaded.count("probe") == 1 + 5

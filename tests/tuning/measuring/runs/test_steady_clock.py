"""Samples of a GPU whose clock falls while it is measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sartor.tuning.measuring import measure_job
from sartor.tuning.measuring.measure_job import MeasureSettings, time_at_steady_clock
from sartor.tuning.measuring.runs import steady_clock
from sartor.tuning.measuring.runs.steady_clock import ClockedRuns, steady

SETTINGS = MeasureSettings("cuda", 1, 1e-3, rounds=6, seconds=0.0)
SECONDS = 60.0


class Gpu:
    """A GPU whose runs take so many cycles each, at the rates that are planted."""

    def __init__(self, rates: Iterator[float]) -> None:
        self._rates = rates
        self.rate = 0.0
        self.runs = 0

    def run(self, cycles: float) -> float:
        self.rate = next(self._rates)
        self.runs += 1
        return cycles / self.rate

    def read(self) -> float:
        return self.rate


def planted(*low: int, rate: float = 900.0) -> Iterator[float]:
    """Rates of 1500 MHz, but for some runs."""
    return (rate if index in low else 1500.0 for index in itertools.count())


def test_samples_at_a_low_clock_are_taken_again() -> None:
    gpu = Gpu(planted(1, 6))
    runs = {"stock": lambda: gpu.run(3000), "kernel": lambda: gpu.run(1500)}
    found = time_at_steady_clock(runs, "stock", SETTINGS, {}, gpu.read)
    assert set(found["stock"]) == {2.0}
    assert set(found["kernel"]) == {1.0}


def test_without_a_clock_they_count() -> None:
    """The fault that the clock is there for."""
    gpu = Gpu(planted(1, 6))
    runs = {"stock": lambda: gpu.run(3000), "kernel": lambda: gpu.run(1500)}
    found = time_at_steady_clock(runs, "stock", SETTINGS, {}, None)
    # The second run of all is the kernel's first. Stock code is hopeless after two rounds, before a seventh run.
    assert found == {"stock": (2.0, 2.0), "kernel": (1500 / 900, 1.0, 1.0, 1.0)}


def test_a_clock_that_varies_a_little_disturbs_nothing() -> None:
    gpu = Gpu(itertools.cycle([1500.0, 1485.0, 1440.0]))
    runs = {"stock": lambda: gpu.run(1500)}
    clocked = ClockedRuns(runs, gpu.read)
    taken = tuple(clocked.by_name["stock"]() for _ in range(9))
    assert clocked.steady({"stock": taken}, SECONDS) == {"stock": taken}
    assert gpu.runs == 9


def test_a_run_that_is_only_disturbed_keeps_its_samples() -> None:
    """A variant that itself heats the GPU so much is as slow in a network."""
    samples = {"hot": (2.0, 2.1), "cool": (1.0,) * 5}
    rates = {"hot": (900.0,) * 2, "cool": (1500.0,) * 5}
    assert steady(samples, rates, lambda _: (2.0, 900.0), SECONDS) == samples


def test_a_sample_that_stays_disturbed_is_left_out_after_some_tries() -> None:
    tries: list[str] = []

    def again(name: str) -> tuple[float, float]:
        tries.append(name)
        return 2.0, 900.0

    found = steady({"kernel": (1.0, 2.0, 1.1)}, {"kernel": (1500.0, 900.0, 1500.0)}, again, SECONDS)
    assert found == {"kernel": (1.0, 1.1)}
    assert len(tries) == 3


def test_a_gpu_that_stays_slow_is_not_waited_for() -> None:
    """Of many disturbed samples only the first are tried again; all are left out, as they are of another clock."""
    tries: list[str] = []

    def again(name: str) -> tuple[float, float]:
        tries.append(name)
        return 2.0, 900.0

    taken = (1.0,) * 55 + (2.0,) * 45
    found = steady({"kernel": taken}, {"kernel": (1500.0,) * 55 + (900.0,) * 45}, again, SECONDS)
    assert found == {"kernel": (1.0,) * 55}
    assert len(tries) == 8


def test_a_clock_that_rises_now_and_then_is_waited_for() -> None:
    rates = itertools.cycle([900.0, 900.0, 1500.0])
    taken = (1.0,) * 55 + (2.0,) * 45
    found = steady({"kernel": taken}, {"kernel": (1500.0,) * 55 + (900.0,) * 45}, lambda _: (1.1, next(rates)), SECONDS)
    assert found == {"kernel": (1.0,) * 55 + (1.1,) * 45}


def test_repeats_end_with_their_time_and_short_runs_are_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(steady_clock, "time", SimpleNamespace(perf_counter=lambda: now))
    tries: list[str] = []

    def again(name: str) -> tuple[float, float]:
        nonlocal now
        tries.append(name)
        now += {"stock": 5.0, "kernel": 0.4}[name]
        return 1.0, 1500.0

    rates = (1500.0, 1500.0, 900.0, 900.0)
    found = steady({"stock": (5.0,) * 4, "kernel": (0.4,) * 4}, {"stock": rates, "kernel": rates}, again, 1.0)
    assert tries == ["kernel", "kernel", "stock"]
    assert found == {"stock": (5.0, 5.0, 1.0), "kernel": (0.4, 0.4, 1.0, 1.0)}


def test_a_run_that_was_not_made_and_an_unknown_clock_change_nothing() -> None:
    def again(name: str) -> tuple[float, float]:
        raise AssertionError(f"{name} is run again")

    samples = {"hopeless": (9.0,), "kernel": (1.0, 1.1)}
    assert steady(samples, {"hopeless": (), "kernel": (1500.0, None)}, again, SECONDS) == samples
    assert steady(samples, {"hopeless": (), "kernel": (None, None)}, again, SECONDS) == samples


def test_measured_cases_watch_the_clock_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    gpu = Gpu(planted(0))

    def clock_of(device: str) -> object:
        asked.append(device)
        return gpu.read

    class Runner:
        least_seconds, error, packed_bytes, by_call = 0.0, 0.0, 0, ()

        def timed(self, overhead: float) -> float:
            return gpu.run(1500)

    monkeypatch.setattr(measure_job, "clock_of", clock_of)
    found = measure_job._timed({"stock": Runner()}, "stock", SETTINGS, 0.0)  # type: ignore[dict-item]
    assert asked == ["cuda"]
    assert set(found["stock"].samples) == {1.0}

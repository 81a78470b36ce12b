"""Times of runs, and statistics of their dispatches."""

from __future__ import annotations

import gc
import math
import os
import resource
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime import dispatch_statistics as dispatch_statistics_module
from sartor.runtime import module
from sartor.runtime.benchmark import Samples, time_interleaved, time_ratio
from sartor.runtime.dispatch_statistics import dispatch_statistics
from sartor.runtime.driver.iree_runtime import benchmark_rows
from sartor.runtime.driver.signature import Array


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def runs(self, name: str, seconds: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            self.now += seconds()

        return run


def test_rounds_are_interleaved_and_kept_raw() -> None:
    clock = Clock()
    times = iter(range(1, 100))
    samples = time_interleaved(
        {"a": clock.runs("a", lambda: 1.0), "b": clock.runs("b", lambda: float(next(times)))},
        min_rounds=5,
        min_seconds=0,
        warmup=2,
        clock=clock,
    )
    assert samples["a"] == Samples((1.0,) * 5)
    assert samples["b"] == Samples((3.0, 4.0, 5.0, 6.0, 7.0))
    rounds = clock.log[4:]
    assert clock.log[:4].count("a") == 2
    assert all(set(rounds[i : i + 2]) == {"a", "b"} for i in range(0, 10, 2))


def test_a_block_is_worth_one_sample_and_its_first_run_none() -> None:
    clock = Clock()
    slow_first = {"a": 9.0, "b": 5.0}

    def seconds(name: str) -> float:
        return slow_first[name] if clock.log[-2:] != [name, name] else 1.0

    samples = time_interleaved(
        {name: clock.runs(name, partial(seconds, name)) for name in slow_first},
        min_rounds=4,
        min_seconds=0,
        block=3.0,
        warmup=0,
        clock=clock,
    )
    assert samples["a"] == samples["b"] == Samples((1.0,) * 4)
    assert clock.log.count("a") == clock.log.count("b") == 4 * 4


def test_nothing_runs_in_the_pause_before_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("sartor.runtime.benchmark.time.sleep", lambda seconds: clock.log.append(f"pause {seconds}"))
    time_interleaved(
        {name: clock.runs(name, lambda: 1.0) for name in "ab"},
        min_rounds=2,
        min_seconds=0,
        pause=0.03,
        warmup=0,
        clock=clock,
    )
    assert clock.log[::2] == ["pause 0.03"] * 4
    assert sorted(clock.log[1::2]) == ["a", "a", "b", "b"]


def test_the_order_varies_and_is_reproducible() -> None:
    def order(seed: int) -> list[str]:
        clock = Clock()
        names = ["a", "b", "c"]
        time_interleaved(
            {name: clock.runs(name, lambda: 1.0) for name in names},
            min_rounds=20, min_seconds=0, warmup=0, seed=seed, clock=clock,
        )  # fmt: skip
        return clock.log

    log = order(1)
    assert log == order(1)
    assert log != order(2)
    assert len({tuple(log[i : i + 3]) for i in range(0, 60, 3)}) > 3


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        ({"min_rounds": 3, "min_seconds": 0.0}, 3),
        ({"min_rounds": 3, "min_seconds": 8.0}, 4),
        ({"min_rounds": 3, "min_seconds": 8.1}, 5),
        ({"min_rounds": 10, "min_seconds": 0.0, "max_seconds": 5.0}, 3),
        ({"min_rounds": 10, "min_seconds": 9.0, "max_seconds": 0.0}, 1),
    ],
)
def test_it_stops_when_there_is_enough(limits: dict[str, float], rounds: int) -> None:
    clock = Clock()
    run = clock.runs("a", lambda: 2.0)
    samples = time_interleaved({"a": run}, warmup=1, clock=clock, **limits)  # type: ignore[arg-type]
    assert len(samples["a"].seconds) == rounds


def test_garbage_is_collected_only_between_rounds() -> None:
    seen: list[bool] = []
    time_interleaved({"a": lambda: seen.append(gc.isenabled())}, min_rounds=2, min_seconds=0, warmup=0)
    assert seen == [False, False]
    assert gc.isenabled()

    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError):
        time_interleaved({"a": fail}, warmup=0)
    assert gc.isenabled()


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        time_interleaved({})


def test_samples_are_summarised() -> None:
    samples = Samples((3.0, 1.0, 2.0, 10.0))
    assert (samples.minimum, samples.median, samples.quantile(1.0)) == (1.0, 2.5, 10.0)


def test_the_ratio_is_that_of_the_medians() -> None:
    ratio = time_ratio(Samples((1.0, 1.0, 1.0)), Samples((2.0, 2.0, 2.0)))
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="different rounds"):
        time_ratio(Samples((1.0,)), Samples((1.0, 2.0)))


def test_drift_that_both_share_cancels() -> None:
    drift = np.linspace(1, 5, 40)
    noise = np.random.default_rng(0).normal(1, 0.01, (2, 40))
    candidate, baseline = Samples(tuple(0.9 * drift * noise[0])), Samples(tuple(drift * noise[1]))
    ratio = time_ratio(candidate, baseline)
    assert ratio.low <= 0.9 <= ratio.high
    assert ratio.high < 1


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        times = random.lognormal(0, 0.2, (2, 31))
        ratio = time_ratio(Samples(tuple(times[0])), Samples(tuple(times[1])), resamples=400, seed=trial)
        covered += ratio.low <= 1.0 <= ratio.high
    assert 0.90 <= covered / 200 <= 1.0


def test_more_confidence_is_a_wider_interval() -> None:
    times = np.random.default_rng(2).lognormal(0, 0.3, (2, 25))
    one, other = Samples(tuple(times[0])), Samples(tuple(times[1]))
    widths = [
        (ratio.high - ratio.low, ratio.confidence)
        for ratio in (time_ratio(one, other, confidence=level) for level in (0.5, 0.9, 0.99))
    ]
    assert all(narrow < wide for narrow, wide in pairwise(widths))
    assert math.isclose(time_ratio(one, other).value, np.median(times[0]) / np.median(times[1]))


@pytest.mark.parametrize("threads", [1, 2])
def test_dispatches_are_reported(model: Path, feeds: dict[str, Array], threads: int) -> None:
    statistics = dispatch_statistics(model, "main_graph", list(feeds.values()), threads=threads, iterations=5)
    assert statistics.seconds > 0
    assert statistics.dispatches
    for dispatch in statistics.dispatches:
        assert dispatch.name.startswith("main_graph$async_dispatch_")
        assert dispatch.calls == 1
        assert 0 < dispatch.seconds < 1
    times = [dispatch.seconds for dispatch in statistics.dispatches]
    assert times == sorted(times, reverse=True)


def test_what_a_session_reads_into_huge_pages_the_tool_does_too(
    model: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALL_BYTES", 0)
    monkeypatch.setattr(module, "has_huge_pages", lambda: True)
    assert module.wants_huge_pages(model)
    assert not module.wants_huge_pages(model.with_suffix(".none"))
    seen: list[tuple[object, str | None]] = []
    original = benchmark_rows

    def spy(path: Path, entry: str, inputs: object, flags: dict[str, object], timeout: float) -> object:
        seen.append((flags["module_mode"], os.environ.get("GLIBC_TUNABLES")))
        return original(path, entry, inputs, flags, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch_statistics_module, "benchmark_rows", spy)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for own in (None, "glibc.malloc.check=0"):
        if own:
            monkeypatch.setenv("GLIBC_TUNABLES", own)
        assert dispatch_statistics(model, "main_graph", list(feeds.values()), threads=1, iterations=2).dispatches
        assert os.environ.get("GLIBC_TUNABLES") == own
    assert [mode for mode, _ in seen] == [["preload"], ["preload"]]
    assert "glibc.malloc.hugetlb=1" in str(seen[0][1]).split(":")
    assert seen[1][1] == "glibc.malloc.check=0"


def test_the_tool_keeps_the_memory_of_an_inference_for_the_next(compile_mlir: Callable[..., Path]) -> None:
    """Pages that each inference brings in again would count as time of the layers that write them first."""
    path, value = compile_mlir("activation"), np.ones((1024, 1024), np.float32)

    def faults(iterations: int) -> int:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        statistics = dispatch_statistics(path, "twice", [value], threads=1, iterations=iterations)
        assert sum(dispatch.calls for dispatch in statistics.dispatches) == 2
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    assert faults(40) < faults(2) + 4 * value.nbytes // resource.getpagesize()


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("bf16", np.ones((2, 3), ml_dtypes.bfloat16)),
        ("i64", np.ones((2, 3), np.int64)),
        ("i8", np.ones((2, 3), np.uint8)),
        ("scalar", np.array(1, np.float32)),
    ],
)
def test_inputs_of_every_kind_are_passed(foreign: Path, entry: str, value: Array) -> None:
    statistics = dispatch_statistics(foreign, entry, [value], threads=1, iterations=2)
    assert [dispatch.calls for dispatch in statistics.dispatches] == [1]


def test_failures_are_sentences(model: Path, feeds: dict[str, Array]) -> None:
    with pytest.raises(DeviceError, match="no function `missing`"):
        dispatch_statistics(model, "missing", [], threads=1)
    with pytest.raises(DeviceError, match="took longer than"):
        dispatch_statistics(model, "main_graph", list(feeds.values()), threads=1, timeout=0.001)
    with pytest.raises(DeviceError, match="cannot be benchmarked"):
        dispatch_statistics(model.with_suffix(".none"), "main_graph", list(feeds.values()), threads=1)

"""Times of runs: without what others take meanwhile, of files read first, of first calls and short ones."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sartor.runtime.mapping.pages import CAN_MOVE
from sartor.tuning.measuring.runs import cold_read as module
from sartor.tuning.measuring.runs import interruptions, variant_runner
from sartor.tuning.measuring.runs.cold_read import cold_read_bandwidth, drop_page_cache
from sartor.tuning.measuring.runs.interruptions import timed, uninterrupted
from sartor.tuning.measuring.runs.variant_runner import VariantRunner, least_seconds
from sartor.tuning.store.store import Store

OWN, OTHERS = 0.004, 0.01


@dataclass
class Clock:
    """Time that passes as runs compute, and as others do."""

    now: float = 0.0
    own: float = 0.0

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.own


class Run:
    """Runs of which some are interrupted.

    Attributes:
        done: number of runs.
        count: number of interruptions.
    """

    def __init__(self, clock: Clock, *interrupted: bool) -> None:
        self._clock = clock
        self._left: Iterator[bool] = itertools.chain(interrupted, itertools.repeat(interrupted[-1]))
        self.done = self.count = 0

    def __call__(self) -> None:
        self.done += 1
        self._clock.own += OWN
        self._clock.now += OWN
        if next(self._left):
            self.count += 1
            self._clock.now += OTHERS

    def seconds(self, *, on_this_thread: bool) -> float:
        return uninterrupted(self, on_this_thread=on_this_thread, count=lambda: self.count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(interruptions, "time", found)
    return found


@pytest.mark.parametrize("on_this_thread", [False, True])
def test_an_interrupted_run_is_repeated(clock: Clock, on_this_thread: bool) -> None:
    run = Run(clock, True, True, False)
    assert run.seconds(on_this_thread=on_this_thread) == pytest.approx(OWN)
    assert run.done == 3


def test_a_run_that_was_not_interrupted_is_not_repeated(clock: Clock) -> None:
    run = Run(clock, False)
    assert run.seconds(on_this_thread=False) == pytest.approx(OWN)
    assert run.done == 1


@pytest.mark.parametrize(("on_this_thread", "seconds"), [(False, OWN + OTHERS), (True, OWN)])
def test_without_a_quiet_moment_the_shortest_counts(clock: Clock, on_this_thread: bool, seconds: float) -> None:
    """On the only thread it is known what others took."""
    run = Run(clock, True)
    assert run.seconds(on_this_thread=on_this_thread) == pytest.approx(seconds)
    assert run.done == math.ceil(interruptions._PATIENCE / (OWN + OTHERS))


def test_what_others_take_of_a_run_without_interruption_is_its_own(clock: Clock) -> None:
    """The clock tells what a run waits for, as for a page of a file."""

    def waits() -> None:
        clock.now += OTHERS

    found = timed(waits, on_this_thread=True, count=lambda: 0)
    assert found.seconds == pytest.approx(OTHERS)
    assert not found.is_interrupted


needs_fadvise = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files cannot be dropped from memory here")


@needs_fadvise
def test_it_is_measured_once_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(module, "_BYTES", 4 << 20)
    with Store.open(tmp_path / "t.db") as store:
        found = cold_read_bandwidth(store, folder)
        assert found is not None
        assert found > 0
        monkeypatch.setattr(module, "_samples", lambda folder: pytest.fail("measured again"))
        assert cold_read_bandwidth(store, folder) == found
    assert list(folder.iterdir()) == []


def test_a_system_that_cannot_forget_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(module, "_BYTES", 1 << 20)
    with Store.open(tmp_path / "t.db") as store:
        assert cold_read_bandwidth(store, tmp_path) is None


@needs_fadvise
def test_what_is_forgotten_is_still_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert drop_page_cache(path)
    assert path.read_bytes() == b"content"


@needs_fadvise
@pytest.mark.parametrize("can_move", [True, False])
def test_a_sample_reads_all_of_the_file(can_move: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, touched = tmp_path / "file", list[int]()
    path.write_bytes(bytes(5 << 20))
    monkeypatch.setattr(module, "CAN_MOVE", can_move and CAN_MOVE)
    monkeypatch.setattr(module, "_touch", lambda content: touched.append(len(content)))
    assert module._read(path) > 0
    assert touched == [5 << 20]


def test_tiles_that_a_driver_compiles_for_seconds_are_not_taken_for_slow() -> None:
    assert least_seconds(5.0, is_candidate_0=False) == 0
    assert least_seconds(60.0, is_candidate_0=False) > 0


def test_candidate_0_is_compiled_quickly_and_so_is_slow_if_its_first_call_is() -> None:
    assert least_seconds(0.5, is_candidate_0=True) == 0
    assert 0 < least_seconds(5.0, is_candidate_0=True) < 5


def test_other_programs_do_not_make_the_first_call_of_a_software_driver_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def processor_time(run: Callable[[], None]) -> float:
        run()
        return 7.0

    monkeypatch.setattr(variant_runner, "busiest_seconds", processor_time)
    runner: Any = object.__new__(VariantRunner)
    runner._program = SimpleNamespace(invoke=lambda symbol, arguments: [symbol, *arguments])
    runner._symbol = "layer"
    for software in (True, False):
        runner._device = SimpleNamespace(software=software)
        seconds, views = runner._called(["x"])
        assert (seconds == 7.0) == software
        assert views == ["run_layer", "x"]


@pytest.mark.parametrize(("taken", "is_candidate_0", "least"), [(0.1, True, 0.0), (0.8, True, 0.8), (0.8, False, 0.0)])
def test_a_long_first_call_of_stock_code_on_a_cpu_tells_how_long_calls_take(
    monkeypatch: pytest.MonkeyPatch, taken: float, is_candidate_0: bool, least: float
) -> None:
    """A kernel's may be long by chance."""
    runner: Any = object.__new__(VariantRunner)
    runner._device = SimpleNamespace(host_memory=True, software=False)
    runner._case = SimpleNamespace(results=())
    runner._implementation = SimpleNamespace(outputs=())
    runner._arrays, runner._sizes, runner.calls, runner.least_seconds = [[]], [], 1, 0.0
    runner._is_candidate_0 = is_candidate_0
    monkeypatch.setattr(runner, "_called", lambda arguments: (taken, []))
    assert runner.outputs() == []
    assert runner.least_seconds == least

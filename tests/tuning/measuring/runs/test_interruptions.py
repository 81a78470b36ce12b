"""Runs are timed without what other programs take meanwhile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sartor.tuning.measuring.runs import interruptions
from sartor.tuning.measuring.runs.interruptions import timed, uninterrupted

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

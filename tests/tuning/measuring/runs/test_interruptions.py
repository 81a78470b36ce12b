"""Runs are timed without what other programs take meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from sartor.tuning.measuring.runs.interruptions import interruptions, timed, uninterrupted


class _Run:
    """Runs that take longer where they are interrupted.

    Attributes:
        interrupted: whether each run is.
        done: number of runs.
    """

    def __init__(self, *interrupted: bool) -> None:
        self._left: Iterator[bool] = itertools.chain(interrupted, itertools.repeat(interrupted[-1]))
        self.done = self.count = 0

    def __call__(self) -> None:
        self.done += 1
        if next(self._left):
            self.count += 1
            time.sleep(0.01)


def test_an_interrupted_run_is_repeated() -> None:
    run = _Run(True, True, False)
    assert uninterrupted(run, on_this_thread=False, count=lambda: run.count) < 0.005
    assert run.done == 3


def test_a_run_that_was_not_interrupted_is_not_repeated() -> None:
    run = _Run(False)
    uninterrupted(run, on_this_thread=False, count=lambda: run.count)
    assert run.done == 1


def test_without_a_quiet_moment_the_shortest_counts() -> None:
    run = _Run(True)
    assert 0.01 <= uninterrupted(run, on_this_thread=False, count=lambda: run.count) < 0.05
    assert 1 < run.done < 8


def test_the_system_counts_interruptions() -> None:
    before = interruptions()
    assert interruptions() >= before >= 0


def test_what_others_take_from_the_only_thread_is_not_counted() -> None:
    run = _Run(True)
    assert uninterrupted(run, on_this_thread=True, count=lambda: run.count) < 0.005


def test_work_of_an_interrupted_run_is_counted() -> None:
    run = _Run(True)

    def works() -> None:
        run()
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

    found = timed(works, on_this_thread=True, count=lambda: run.count)
    assert found.is_interrupted
    assert 0.005 <= found.seconds < 0.01


def test_without_interruption_the_clock_counts() -> None:
    assert timed(lambda: time.sleep(0.01), on_this_thread=True, count=lambda: 0).seconds >= 0.01

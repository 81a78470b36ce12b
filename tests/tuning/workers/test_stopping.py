"""Work that waits for workers ends early where the user asks for it, and nowhere else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from sartor.cli.output import signals
from sartor.cli.output.signals import Interrupted, unwinding
from sartor.tuning.workers.beside.stopping import NEVER, Stop, Stopped, can_stop, current, stoppable
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import JobStatus


def later(seconds: float, number: int = signal.SIGINT) -> threading.Timer:
    """Send a signal to this process after some time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Who was interrupted ignores signals from then on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def call_for_ever(pool: WorkerPool) -> None:
    while True:
        list(pool.map_unordered("time:monotonic", [("short", {})], 60.0))


def test_only_an_interruptible_wait_ends() -> None:
    stop = Stop()
    with stop.waiting():
        stop.request()
    with stop.interruptible():
        assert stop.is_requested
        with pytest.raises(Stopped), stop.waiting():
            raise AssertionError("this is not reached")
    with stop.waiting():
        pass


def test_nothing_stops_unless_something_can() -> None:
    assert current() is NEVER
    assert not can_stop()
    with stoppable() as stop:
        assert can_stop()
        stop.request()
        assert not can_stop()
        assert current() is stop
    assert current() is NEVER
    assert not NEVER.is_requested


def test_ctrl_c_ends_a_job_and_the_pool_goes_on() -> None:
    begin = time.monotonic()
    with unwinding(), stoppable() as stop, WorkerPool(1) as pool:
        later(1.0)
        with pytest.raises(Stopped), stop.interruptible():
            call_for_ever(pool)
        (done,) = pool.map_unordered("time:monotonic", [("next", {})], 60.0)
    assert done.status is JobStatus.OK
    assert time.monotonic() - begin < 60.0


def test_the_second_ctrl_c_aborts(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with unwinding(), stoppable() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
        # A terminal may say it twice.
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(signals, "_SAME_SIGNAL_SECONDS", 0.0)
        with pytest.raises(Interrupted) as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.value.exit_code == 130
    assert capfd.readouterr().err.count("Ctrl-C again aborts") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_stop_nothing_early(number: signal.Signals) -> None:
    with unwinding(), stoppable() as stop, pytest.raises(Interrupted):
        os.kill(os.getpid(), number)
    assert not stop.is_requested


def test_without_anything_to_stop_ctrl_c_aborts() -> None:
    with unwinding(), pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGINT)

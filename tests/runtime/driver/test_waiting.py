"""Tests of waiting without interrupting workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.runtime.driver.waiting import CalmedThreads, PatientWait

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="threads have no such policy here")


def in_thread(run: Callable[[], list[int]]) -> list[int]:
    """What ``run`` returns in a thread of its own, whose policy ends with it."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(run()))
    thread.start()
    thread.join()
    return found


def policies() -> list[int]:
    before = os.sched_getscheduler(0)
    with PatientWait():
        inside = os.sched_getscheduler(0)
    return [before, inside, os.sched_getscheduler(0)]


def test_a_thread_is_patient_while_it_waits() -> None:
    assert in_thread(policies) == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER]


def test_a_wait_within_a_wait_ends_with_the_outer_one() -> None:
    def nested() -> list[int]:
        with PatientWait():
            return policies()

    assert in_thread(nested) == [os.SCHED_BATCH] * 3


def test_a_thread_with_a_policy_of_its_own_keeps_it() -> None:
    def idle() -> list[int]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return policies()

    assert in_thread(idle) == [os.SCHED_IDLE] * 3


def test_a_sandbox_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    assert policies() == [os.SCHED_OTHER] * 3


def test_the_policy_comes_back_after_an_error() -> None:
    def failing() -> list[int]:
        with pytest.raises(ValueError, match="the run failed"), PatientWait():
            raise ValueError("the run failed")
        return [os.sched_getscheduler(0)]

    assert in_thread(failing) == [os.SCHED_OTHER]


def niceness_of_a_thread(run: Callable[[threading.Event], None]) -> int:
    """The niceness of a thread that was started while a device was opened."""
    ended = threading.Event()
    with CalmedThreads():
        thread = threading.Thread(target=run, args=(ended,))
        thread.start()
    try:
        assert thread.native_id is not None
        return os.getpriority(os.PRIO_PROCESS, thread.native_id)
    finally:
        ended.set()
        thread.join()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel counts no processor time of threads")
def test_a_thread_that_spins_gets_less_processor_time() -> None:
    def spin(ended: threading.Event) -> None:
        while not ended.is_set():
            pass

    assert niceness_of_a_thread(spin) > os.getpriority(os.PRIO_PROCESS, 0)


def test_a_thread_that_sleeps_keeps_its_niceness() -> None:
    def sleep(ended: threading.Event) -> None:
        ended.wait()

    assert niceness_of_a_thread(sleep) == os.getpriority(os.PRIO_PROCESS, 0)

"""Tests of waiting without interrupting workers."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.runtime.driver import waiting
from sartor.runtime.driver.waiting import CalmedThreads, PatientWait, busiest_seconds, let_workers_rest

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


def niceness_of_a_thread(run: Callable[[threading.Event], None], then: Callable[[], None] = lambda: None) -> int:
    """The niceness of a thread that was started while a device was opened; ``then`` is called before it is to end."""
    ended = threading.Event()
    with CalmedThreads():
        thread = threading.Thread(target=run, args=(ended,))
        thread.start()
    try:
        assert thread.native_id is not None
        return os.getpriority(os.PRIO_PROCESS, thread.native_id)
    finally:
        then()
        ended.set()
        thread.join()


counts_threads = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the kernel counts no processor time of threads"
)


@counts_threads
def test_a_thread_that_spins_gets_less_processor_time() -> None:
    def spin(ended: threading.Event) -> None:
        while not ended.is_set():
            pass

    assert niceness_of_a_thread(spin) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


@counts_threads
def test_a_thread_that_spins_is_found_without_a_turn_on_a_processor() -> None:
    def spin(ended: threading.Event) -> None:
        # Others always go first. It computes without the interpreter's lock, for which the test would have to wait.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while not ended.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000)

    def end_others() -> None:
        for each in others:
            each.kill()
            each.wait()

    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        niceness = niceness_of_a_thread(spin, end_others)
        assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    finally:
        end_others()


def test_a_thread_that_sleeps_keeps_its_niceness() -> None:
    def sleep(ended: threading.Event) -> None:
        ended.wait()

    assert niceness_of_a_thread(sleep) == os.getpriority(os.PRIO_PROCESS, 0)


def _compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@counts_threads
def test_a_run_takes_what_the_busiest_of_its_threads_computes() -> None:
    calls: list[queue.Queue[float]] = [queue.Queue(), queue.Queue()]

    def serve(given: queue.Queue[float]) -> None:
        while seconds := given.get():
            _compute(seconds)
            given.task_done()

    threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in calls]
    for each in threads:
        each.start()

    def run() -> None:
        for given, seconds in zip(calls, (0.02, 0.05), strict=True):
            given.put(seconds)
        for given in calls:
            given.join()
        _compute(0.2)

    try:
        assert 0.05 <= busiest_seconds(run) < 0.2
    finally:
        for given in calls:
            given.put(0.0)


@counts_threads
def test_threads_that_spin_do_not_count() -> None:
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            pass

    with CalmedThreads():
        thread = threading.Thread(target=spin)
        thread.start()
    try:
        assert busiest_seconds(lambda: time.sleep(0.05)) < 0.01
    finally:
        ended.set()
        thread.join()


def _task(folder: Path, number: int, name: str, state: str) -> None:
    task = folder / str(number)
    task.mkdir(exist_ok=True)
    (task / "comm").write_text(f"{name}\n")
    (task / "stat").write_text(f"{number} ({name}) {state} 1 2 3\n")


def test_workers_rest_when_none_of_them_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_TASKS", tmp_path)
    _task(tmp_path, 1, "python", "R")
    _task(tmp_path, 2, "iree-worker-0", "S")
    started = time.monotonic()
    let_workers_rest(30.0)
    assert time.monotonic() - started < 10.0
    _task(tmp_path, 3, "iree-worker-1", "R")
    started = time.monotonic()
    let_workers_rest(0.2)
    assert time.monotonic() - started >= 0.2
    timer = threading.Timer(0.2, _task, (tmp_path, 3, "iree-worker-1", "S"))
    timer.start()
    started = time.monotonic()
    let_workers_rest(30.0)
    assert 0.1 <= time.monotonic() - started < 10.0
    timer.join()

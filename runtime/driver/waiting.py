"""Waits for worker threads without preempting them, and keeps threads that wait busily from taking their processors."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_CAN_YIELD = hasattr(os, "SCHED_BATCH")
_TASKS = Path("/proc/self/task")
_LOOKS, _LOOK_SECONDS = 10, 0.001
_SPINNING = 0.5
_RUNNING = "R"
_WORKER = "iree-worker"
_REST_SECONDS, _RESTING_LOOKS = 2.0, 3
# A ninth of the processor time of this process's other threads. With even less, a thread that has spun beside other
# programs waits for some hundred milliseconds for its turn, and so would who waits for it.
_NICER, _NICEST = 10, 19
# Threads of this process that were found to spin. Their niceness tells it only where this process's own is low.
_calmed: set[int] = set()


class PatientWait:
    """A context in which the calling thread, when it wakes up, does not preempt other threads.

    A worker of IREE wakes the thread that waits for a run, and then signals that it has finished waking it. If Linux
    runs the woken thread on the worker's processor, that thread spins until its time slice ends and the worker can
    signal: 3 to 5 ms, in a quarter of the runs with as many workers as processors. Threads with the policy for batch
    jobs do not preempt others; every thread may select that policy and go back. Nothing is changed on other systems, or
    for threads with another policy than the default.
    """

    def __enter__(self) -> None:
        self._chosen = _CAN_YIELD and _switch(os.SCHED_OTHER, os.SCHED_BATCH)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._chosen:
            _switch(os.SCHED_BATCH, os.SCHED_OTHER)


def let_workers_rest(patience: float = _REST_SECONDS) -> None:
    """Wait until IREE's worker threads have nothing to do, but no longer than some seconds.

    A worker gives back what an inference used after the caller has its result. On other systems than Linux this does
    nothing.
    """
    end = time.monotonic() + patience
    # A worker that waits for Python's lock sleeps, so that one look is not enough.
    looks = 0
    while looks < _RESTING_LOOKS and time.monotonic() < end:
        looks = 0 if any(_is_worker(thread) and _is_ready(thread) for thread in _threads()) else looks + 1
        time.sleep(_LOOK_SECONDS)


def _threads() -> list[int]:
    """The threads of this process; none where the system does not tell."""
    return [int(path.name) for path in _TASKS.glob("[0-9]*")]


def _is_worker(thread: int) -> bool:
    """Whether a thread is one of IREE's that compute."""
    try:
        return (_TASKS / str(thread) / "comm").read_text().startswith(_WORKER)
    except OSError:
        # It has ended.
        return False


class CalmedThreads:
    """A context in which a device is opened: threads that it starts and that spin get less processor time.

    IREE waits for each queue of a Vulkan device in a thread, for either of two semaphores. Drivers that cannot do that
    query them in turn without a pause; Mesa's do, as long as the device is open. On a CPU that computes in place of a
    GPU these threads take a processor each from those that compute. Nothing is changed on other systems than Linux.
    """

    def __enter__(self) -> None:
        self._before = set(thread_times())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = set(thread_times()) - self._before
        # A number may be that of a thread that has ended.
        _calmed.difference_update(started)
        if error is None and started:
            for thread in _spinning() & started:
                _calm(thread)


def busiest_seconds(run: Callable[[], None]) -> float:
    """The processor time of the busiest thread of this process during a run, which computes in other threads.

    It is the time of the run on a quiet machine: other programs do not count, nor do the calling thread and those that
    spin, which have less processor time than the usual.
    """
    own, before = threading.get_native_id(), thread_times()
    run()
    taken = {thread: seconds - before.get(thread, 0.0) for thread, seconds in thread_times().items()}
    return max((taken[thread] for thread in taken if thread != own and computes(thread)), default=0.0)


def computes(thread: int) -> bool:
    """Whether a thread is there to compute: it neither spins nor has another niceness than the usual."""
    return thread not in _calmed and niceness(thread) == os.getpriority(os.PRIO_PROCESS, 0)


def niceness(thread: int) -> int | None:
    """The niceness of a thread; None if it has ended."""
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except OSError:
        return None


def _spinning() -> set[int]:
    """Threads of this process that compute although there is nothing to do.

    Beside other programs one may not have its turn for long, but it is ready to run whenever one looks.
    """
    seen: Counter[int] = Counter()
    for _ in range(_LOOKS):
        time.sleep(_LOOK_SECONDS)
        seen.update(thread_time for thread_time in thread_times() if _is_ready(thread_time))
    return {thread for thread, times in seen.items() if times > _SPINNING * _LOOKS}


def _is_ready(thread: int) -> bool:
    """Whether a thread runs or waits for a processor only."""
    try:
        return (_TASKS / str(thread) / "stat").read_text().rpartition(")")[2].split()[0] == _RUNNING
    except (OSError, IndexError):
        # It has ended.
        return False


def thread_times() -> dict[int, float]:
    """Seconds that each thread of this process has computed, by its number; empty where the system does not tell."""
    times: dict[int, float] = {}
    for path in _TASKS.glob("[0-9]*"):
        try:
            times[int(path.name)] = int((path / "schedstat").read_text().split()[0]) * 1e-9
        except (OSError, ValueError, IndexError):
            # The thread has ended, or the kernel counts nothing.
            continue
    return times


def _calm(thread: int) -> None:
    _calmed.add(thread)
    present, wanted = niceness(thread), min(os.getpriority(os.PRIO_PROCESS, 0) + _NICER, _NICEST)
    try:
        if present is not None and present < wanted:
            os.setpriority(os.PRIO_PROCESS, thread, wanted)
    except OSError:
        # It has ended.
        return


def _switch(current: int, wanted: int) -> bool:
    """Change the calling thread's policy; returns False if it has not the ``current`` one, or may not change it."""
    try:
        if os.sched_getscheduler(0) != current:
            return False
        os.sched_setscheduler(0, wanted, os.sched_param(0))
    except OSError:
        return False
    return True

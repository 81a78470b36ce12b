"""Waits for worker threads without preempting them, and keeps threads that wait busily from taking their processors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

_CAN_YIELD = hasattr(os, "SCHED_BATCH")
_TASKS = Path("/proc/self/task")
_WATCHED_SECONDS = 0.01
_SPINNING = 0.1
# A ninth of the processor time of a thread with the default niceness. With even less, a thread that has spun beside
# other programs waits for some hundred milliseconds for its turn, and so would who waits for it.
_NICENESS = 10


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


class CalmedThreads:
    """A context in which a device is opened: threads that it starts and that spin get less processor time.

    IREE waits for each queue of a Vulkan device in a thread, for either of two semaphores. Drivers that cannot do that
    query them in turn without a pause; Mesa's do, as long as the device is open. On a CPU that computes in place of a
    GPU these threads take a processor each from those that compute. Nothing is changed on other systems than Linux.
    """

    def __enter__(self) -> None:
        self._before = set(_processor_times())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = set(_processor_times()) - self._before
        if error is None and started:
            for thread in _spinning() & started:
                _calm(thread)


def _spinning() -> set[int]:
    """Threads of this process that compute although there is nothing to do."""
    begin, before = time.monotonic(), _processor_times()
    time.sleep(_WATCHED_SECONDS)
    after, passed = _processor_times(), time.monotonic() - begin
    return {thread for thread, taken in after.items() if taken - before.get(thread, taken) > _SPINNING * passed}


def _processor_times() -> dict[int, float]:
    """Seconds that each thread of this process has computed; none where the system does not tell."""
    found: dict[int, float] = {}
    for each in _TASKS.glob("[0-9]*"):
        try:
            found[int(each.name)] = int((each / "schedstat").read_text().split()[0]) * 1e-9
        except (OSError, ValueError, IndexError):
            # The thread has ended, or the kernel counts nothing.
            continue
    return found


def _calm(thread: int) -> None:
    try:
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
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

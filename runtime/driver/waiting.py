"""Waits for worker threads without preempting them."""

from __future__ import annotations

import os
from types import TracebackType

_CAN_YIELD = hasattr(os, "SCHED_BATCH")


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


def _switch(current: int, wanted: int) -> bool:
    """Change the calling thread's policy; returns False if it has not the ``current`` one, or may not change it."""
    try:
        if os.sched_getscheduler(0) != current:
            return False
        os.sched_setscheduler(0, wanted, os.sched_param(0))
    except OSError:
        return False
    return True

"""Waiting for worker threads without taking their processor from them."""

from __future__ import annotations

import os
from types import TracebackType

_CAN_YIELD = hasattr(os, "SCHED_BATCH")


class PatientWait:
    """While it lasts, the calling thread does not interrupt others of its kind when it is woken.

    IREE wakes the thread that waits for a run from a worker, which then says that it is done with waking it. If Linux
    starts the woken thread on the worker's processor, that thread spins until it has used up its time slice and the
    worker can say so: 3 to 5 ms, in a quarter of the runs with as many workers as processors. Threads of the policy
    for batch jobs do not interrupt others; every thread may choose it and go back. Other systems are left alone, and
    threads that have a policy of their own.
    """

    def __enter__(self) -> None:
        self._chosen = _CAN_YIELD and _switch(os.SCHED_OTHER, os.SCHED_BATCH)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._chosen:
            _switch(os.SCHED_BATCH, os.SCHED_OTHER)


def _switch(current: int, wanted: int) -> bool:
    """Change the calling thread's policy; whether it had the current one, and a sandbox did not forbid it."""
    try:
        if os.sched_getscheduler(0) != current:
            return False
        os.sched_setscheduler(0, wanted, os.sched_param(0))
    except OSError:
        return False
    return True

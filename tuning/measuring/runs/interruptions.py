"""Times of runs without what other programs take meanwhile: the system says how often one got the processor.

One interruption takes some milliseconds. A variant of some microseconds would be taken for hopelessly slow, and not be
run again; beside more programs than there are processors no long run is without one.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

# Runs that take as long are interrupted on any busy machine.
_PATIENCE = 0.05


@dataclass(frozen=True)
class TimedRun:
    """One run.

    Attributes:
        seconds: by the clock; of an interrupted run on one thread, the processor time of that thread, in which others'
            is not contained.
        is_interrupted: whether another program got the processor.
    """

    seconds: float
    is_interrupted: bool


def interruptions() -> int:
    """How often a thread of this process had to give its processor to another program."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed(run: Callable[[], object], *, on_this_thread: bool, count: Callable[[], int] = interruptions) -> TimedRun:
    """Time a run.

    Args:
        run: what is timed.
        on_this_thread: whether it computes on the calling thread alone.
        count: how often other programs got the processor until now.
    """
    before, own, start = count(), time.thread_time(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    is_interrupted = count() != before
    if is_interrupted and on_this_thread:
        seconds = min(seconds, time.thread_time() - own)
    return TimedRun(seconds, is_interrupted)


def uninterrupted(
    run: Callable[[], object], *, on_this_thread: bool, count: Callable[[], int] = interruptions
) -> float:
    """Seconds of a run that was not interrupted; if there is none in reasonable time, of the shortest.

    Args:
        run, on_this_thread, count: as for ``timed``.
    """
    least, begin = math.inf, time.perf_counter()
    while True:
        timed_runs = timed(run, on_this_thread=on_this_thread, count=count)
        if not timed_runs.is_interrupted:
            return timed_runs.seconds
        least = min(least, timed_runs.seconds)
        if time.perf_counter() - begin > _PATIENCE:
            return least

"""Samples that were taken while a GPU's clock was low, because it was hot or had been idle, are taken again.

As interruptions are on a CPU, they are found by what the system says, and not by the samples themselves: a variant that
is slow looks like one that was disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import Generic, TypeVar

from sartor.tuning.measuring.runs.gpu_clock import ReadClock

_LOW = 0.95
"""Part of the usual clock below which a sample is disturbed; GPUs change their clock in steps of about 1%."""

_TRIES = 3

_MOST_FAILURES = 8
"""Tries in a row at a low clock after which the GPU is taken to stay slow, as a hot one does."""

ClockedSample = tuple[float, float | None]
"""Seconds, and the clock's rate at the end; None if it is not known. Before a run the GPU may have been idle."""

_Name = TypeVar("_Name", bound=Hashable)


def steady(
    samples: Mapping[_Name, Sequence[float]],
    rates: Mapping[_Name, Sequence[float | None]],
    again: Callable[[_Name], ClockedSample],
    seconds: float,
) -> dict[_Name, tuple[float, ...]]:
    """Samples with others in place of those for which the clock was below the median of all.

    One that is disturbed in each try is left out, unless its run has no other: then all stay. So are those for which no
    time is left, or whose clock does not rise any more. Short runs come first: candidate 0 may take a thousand times as
    long as they do.

    Args:
        samples: by the name of the run.
        rates: of the clock, for each sample; none of a run that was not made.
        again: takes a sample of a run.
        seconds: no try begins after this time.
    """
    known = [rate for taken in rates.values() for rate in taken if rate is not None]
    if not known:
        return {name: tuple(taken) for name, taken in samples.items()}
    repeats = _Repeats(again, _LOW * median(known), seconds)
    steady_times: dict[_Name, tuple[float, ...]] = {}
    for name in sorted(samples, key=lambda sample: min(samples[sample], default=0.0)):
        taken = samples[name]
        pairs = zip(taken, rates[name] or [None] * len(taken), strict=True)
        kept = [time_of_run if repeats.is_steady(rate) else repeats.sample(name) for time_of_run, rate in pairs]
        steady_times[name] = tuple(time_of_run for time_of_run in kept if time_of_run is not None) or tuple(taken)
    return steady_times


class _Repeats(Generic[_Name]):
    """Takes samples again, while there is time and the clock rises."""

    def __init__(self, again: Callable[[_Name], ClockedSample], least: float, seconds: float) -> None:
        self._again = again
        self._least = least
        self._end = time.perf_counter() + seconds
        self._failures = 0

    def is_steady(self, rate: float | None) -> bool:
        return rate is None or rate >= self._least

    def sample(self, name: _Name) -> float | None:
        """A sample at a clock that is not low; None if there is none in some tries."""
        for _ in range(_TRIES):
            if self._failures >= _MOST_FAILURES or time.perf_counter() >= self._end:
                return None
            seconds, rate = self._again(name)
            if self.is_steady(rate):
                self._failures = 0
                return seconds
            self._failures += 1
        return None


class ClockedRuns:
    """Runs whose clocks are noted.

    Attributes:
        by_name: what to run; each returns the seconds of one call.
    """

    def __init__(self, runs: Mapping[str, Callable[[], float]], clock: ReadClock) -> None:
        self._runs = runs
        self._clock = clock
        self._rates: dict[str, list[float | None]] = {name: [] for name in runs}
        self.by_name = {name: self._noting(name) for name in runs}

    def steady(self, samples: Mapping[str, Sequence[float]], seconds: float) -> dict[str, tuple[float, ...]]:
        """All samples of ``by_name``, repeated for so long where they were disturbed."""
        return steady(samples, self._rates, self._run, seconds)

    def _noting(self, name: str) -> Callable[[], float]:
        def run() -> float:
            seconds, rate = self._run(name)
            self._rates[name].append(rate)
            return seconds

        return run

    def _run(self, name: str) -> ClockedSample:
        return self._runs[name](), self._clock()

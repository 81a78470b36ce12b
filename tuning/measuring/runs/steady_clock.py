"""Samples that were taken while a GPU's clock was low, because it was hot or had been idle, are taken again.

As interruptions are on a CPU, they are found by what the system says, and not by the samples themselves: a variant that
is slow looks like one that was disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from sartor.tuning.measuring.runs.gpu_clock import ReadClock

_LOW = 0.95
"""Part of the usual clock below which a sample is disturbed; GPUs change their clock in steps of about 1%."""

_TRIES = 3

ClockedSample = tuple[float, float | None]
"""Seconds, and the clock's rate at the end; None if it is not known. Before a run the GPU may have been idle."""

_Name = TypeVar("_Name", bound=Hashable)


def steady(
    samples: Mapping[_Name, Sequence[float]],
    rates: Mapping[_Name, Sequence[float | None]],
    again: Callable[[_Name], ClockedSample],
) -> dict[_Name, tuple[float, ...]]:
    """Samples with others in place of those for which the clock was below the median of all.

    One that is disturbed in each try is left out, unless its run has no other: then all stay.

    Args:
        samples: by the name of the run.
        rates: of the clock, for each sample; none of a run that was not made.
        again: takes a sample of a run.
    """
    known = [rate for taken in rates.values() for rate in taken if rate is not None]
    if not known:
        return {name: tuple(taken) for name, taken in samples.items()}
    least = _LOW * median(known)
    found: dict[_Name, tuple[float, ...]] = {}
    for name, taken in samples.items():
        pairs = zip(taken, rates[name] or [None] * len(taken), strict=True)
        kept = [each if _is_steady(rate, least) else _repeated(name, again, least) for each, rate in pairs]
        found[name] = tuple(each for each in kept if each is not None) or tuple(taken)
    return found


def _is_steady(rate: float | None, least: float) -> bool:
    return rate is None or rate >= least


def _repeated(name: _Name, again: Callable[[_Name], ClockedSample], least: float) -> float | None:
    """A sample at a clock that is not low; None if there is none in some tries."""
    for _ in range(_TRIES):
        seconds, rate = again(name)
        if _is_steady(rate, least):
            return seconds
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

    def steady(self, samples: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
        """All samples of ``by_name``, repeated where they were disturbed."""
        return steady(samples, self._rates, self._run)

    def _noting(self, name: str) -> Callable[[], float]:
        def run() -> float:
            seconds, rate = self._run(name)
            self._rates[name].append(rate)
            return seconds

        return run

    def _run(self, name: str) -> ClockedSample:
        return self._runs[name](), self._clock()

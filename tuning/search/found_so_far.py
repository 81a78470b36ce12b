"""What a search has found so far, and how long it will take at most, for the user who waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, Status

_MINUTE, _STEP = 60, 10
# Compiling and measuring.
_PARTS = 2


@dataclass
class FoundSoFar:
    """Times of the network's layers by the best variants, and by candidate 0, of the tasks that were measured.

    Attributes:
        cases: all of them.
        counts: number of the network's layers with each task, by key.
        clock: returns seconds.
        bound: seconds of the layers of a task by the roofline of the core, by key; empty if that is not known.
    """

    cases: Sequence[BenchmarkCase]
    counts: Mapping[str, int]
    clock: Callable[[], float] = time.monotonic
    bound: Mapping[str, float] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)
    _stock: dict[str, float] = field(default_factory=dict)
    _began: float | None = None
    _done: int = 0
    _left: int = 0
    _foreseen: tuple[float, float] | None = None

    def foresee(self, seconds: float, gain: float) -> None:
        """All layers of the network take so many seconds by what is known and predicted, of which what may yet be
        measured promises to save ``gain``."""
        self._foreseen = seconds, gain

    def expect(self, variants: int) -> None:
        """So many variants are compiled and measured from now on, at most."""
        self._left = _PARTS * variants
        if self._began is None:
            self._began = self.clock()

    def told(self, case: BenchmarkCase, measured: Mapping[str, Measurement] | None) -> str:
        """Take note of a case that was compiled, or measured; returns what is known, as a clause."""
        self._done += len(case.variants)
        self._left = max(0, self._left - len(case.variants))
        if measured is not None and any(case.key == own.key for own in self.cases):
            self.learn(case, measured)
        return str(self)

    def learn(self, case: BenchmarkCase, measured: Mapping[str, Measurement]) -> None:
        """Take note of a case's measurements, by descriptor."""
        first = measured.get(case.variants[0].descriptor)
        if first is None or first.status is not Status.OK:
            return
        right = [
            measurement.time_at(first.time) for measurement in measured.values() if measurement.status is Status.OK
        ]
        self._best[case.key], self._stock[case.key] = min(right), first.time

    @property
    def seconds_left(self) -> float | None:
        """What compiling and measuring take at most from now on, as they did so far; None if nothing was done yet."""
        if self._began is None or not self._done:
            return None
        return (self.clock() - self._began) / self._done * self._left

    def __str__(self) -> str:
        known = f"{len(self._best)} of {len(self.cases)} kinds of layers"
        best, stock = (
            sum(self.counts.get(key, 0) * seconds_of_cases[key] for key in seconds_of_cases)
            for seconds_of_cases in (self._best, self._stock)
        )
        times = f": {best * 1e3:.3f} ms, by stock IREE {stock * 1e3:.3f} ms" if self._best else ""
        if self._best and self.bound:
            least = sum(self.counts.get(key, 0) * self.bound.get(key, 0.0) for key in self._best)
            times = f"{times}, roofline {least * 1e3:.3f} ms"
        if self._best and self._foreseen is not None:
            seconds, gain = self._foreseen
            times = f"{times}; all layers {seconds * 1e3:.3f} ms, by the model {(seconds - gain) * 1e3:.3f} ms"
        return f"{known} measured{times}{_left(self.seconds_left)}"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"; at most {_STEP * max(1, math.ceil(seconds / _STEP))} s left"
    return f"; at most {math.ceil(seconds / _MINUTE)} min left"

"""Short calls of a model of any size, on the thread that calls.

To hand work to other threads and to wake them takes some ten microseconds a call, more than a short call does. How long
depends on the machine, so it is measured: calls of similar sizes are run in both ways in turn, and go on in the faster.
Both run the same code, so that no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeGuard

import numpy as np

from sartor.runtime.driver.signature import Array

LONGEST_SECONDS = 4e-3
"""Calls that take longer on all threads, each of the first ones, stay there: several threads are worth what it takes to
wake them. On a busy machine that takes milliseconds."""

# Calls that wait for what is brought into memory, those in each way, and those for which a decision holds.
_FIRST, _TRIALS, HELD = 3, 6, 500
# The calling thread is given up after a trial that took so many times as long as the least of all threads.
_HOPELESS = 2
# All threads are left for what is faster beyond doubt.
_GAIN = 0.9
Run = Callable[[], list[Array]]


def are_plain(feeds: object) -> TypeGuard[dict[str, Array]]:
    """Whether all inputs are arrays of numpy."""
    return isinstance(feeds, dict) and all(type(array) is np.ndarray for array in feeds.values())


class _Trials:
    """Calls with similar sizes: seconds by element on all threads and on the calling one, and what follows of them.

    Attributes:
        is_inline: whether calls run on the calling thread; None while that is not known.
        left: calls for which that holds.
    """

    def __init__(self) -> None:
        self.is_inline: bool | None = None
        self.left = HELD
        self._begun = 0
        self._on_all: list[float] = []
        self._inline: list[float] = []

    def is_next_inline(self) -> bool:
        """Whether the call that begins runs on the calling thread, to find which is faster."""
        self._begun += 1
        return self._begun > _FIRST and self._begun % 2 == 0

    def add(self, is_inline: bool, seconds: float, elements: int) -> None:
        """Note a call that has ended."""
        (self._inline if is_inline else self._on_all).append(seconds / max(1, elements))
        least = min(self._on_all, default=0.0) * max(1, elements)
        if is_inline:
            # The first call of each size brings things into memory.
            is_long = len(self._inline) > 1 and seconds > max(LONGEST_SECONDS, _HOPELESS * least)
        else:
            is_long = len(self._on_all) == _FIRST and least > LONGEST_SECONDS
        if is_long:
            self.is_inline = False
        if min(len(self._inline), len(self._on_all) - _FIRST) >= _TRIALS:
            # The first calls of each size take longer, and a disturbed call takes longer still.
            self.is_inline = _median(self._inline) < _GAIN * _median(self._on_all[_FIRST:])


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


class ShortCalls:
    """Decides for each call where it runs. Sizes are similar if their inputs have as many elements, within a factor of
    two. Threads may call at once: a decision needs no exact count."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """With a clock that tells seconds."""
        self._clock = clock
        self._trials: dict[int, _Trials] = {}

    def run(self, feeds: Mapping[str, Array], on_all: Run, inline: Run) -> list[Array]:
        """What one of both gives, which are the model on all threads and on the calling one."""
        elements = sum(array.size for array in feeds.values())
        trials = self._trials.setdefault(elements.bit_length(), _Trials())
        if (is_inline := trials.is_inline) is not None:
            trials.left -= 1
            if trials.left <= 0:
                # Other programs may have ended since, or begun.
                self._trials.pop(elements.bit_length(), None)
            return inline() if is_inline else on_all()
        is_inline = trials.is_next_inline()
        begin = self._clock()
        results = inline() if is_inline else on_all()
        trials.add(is_inline, self._clock() - begin, elements)
        return results

"""Times several callables side by side, and computes the confidence interval of the ratio of their times.

Runs of the candidates are interleaved, so that changes of the machine's speed affect all of them alike. The raw samples
are kept.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sartor.workspace import nothing_collected

BLOCK = 0.25
"""Seconds for which each runtime runs in its turn, where runtimes are compared."""

PAUSE = 0.03
"""Seconds between two blocks: threads of some runtimes spin after a run, on cores that the next one needs."""


@dataclass(frozen=True)
class Samples:
    """Seconds of each run of one candidate; sample ``i`` is from round ``i`` of all candidates.

    ``begins`` are the times at which they began, in seconds by the clock; empty if they are not known. Samples that
    differ in them only are equal.
    """

    seconds: tuple[float, ...]
    begins: tuple[float, ...] = field(default=(), compare=False)

    @property
    def minimum(self) -> float:
        """The shortest run, in seconds."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median run, in seconds."""
        return float(np.median(self.seconds))

    def quantile(self, fraction: float) -> float:
        """The ``fraction`` quantile of the runs' times, in seconds."""
        return float(np.quantile(self.seconds, fraction))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times with its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float


def time_interleaved(
    callables: Mapping[str, Callable[[], object]],
    *,
    min_rounds: int = 10,
    min_seconds: float = 1.0,
    max_seconds: float = math.inf,
    block: float = 0.0,
    pause: float = 0.0,
    warmup: int = 2,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Time every callable once per round, or for a block of time, in a new random order each round.

    Runs of the other callables evict a callable's data from the caches. In a block a callable follows its own runs, as
    in a program that does nothing else; a sample is the median of the block's runs except the first.

    Garbage is collected between rounds only.

    Args:
        callables: what to time, by name.
        min_rounds: least number of rounds.
        min_seconds: rounds continue until they have taken this time in all.
        max_seconds: no round after the first begins after this time.
        block: seconds of a block; 0 for single runs.
        pause: seconds before each turn in which nothing runs.
        warmup: untimed runs of each callable before the first round.
        seed: of the random order.
        clock: returns seconds.

    Raises:
        ValueError: if there is nothing to time.
    """
    if not callables:
        raise ValueError("nothing to time")
    for run in [run for run in callables.values() for _ in range(warmup)]:
        run()
    order = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in callables}
    begins: dict[str, list[float]] = {name: [] for name in callables}
    start = clock()
    rounds = 0
    while rounds == 0 or not _enough(rounds, clock() - start, min_rounds, min_seconds, max_seconds):
        with nothing_collected():
            for name in order.sample(list(callables), len(callables)):
                if pause:
                    time.sleep(pause)
                begin, taken = _time_block(callables[name], block, clock)
                begins[name].append(begin)
                seconds[name].append(taken)
        rounds += 1
    return {name: Samples(tuple(samples), tuple(begins[name])) for name, samples in seconds.items()}


def _enough(rounds: int, elapsed: float, min_rounds: int, min_seconds: float, max_seconds: float) -> bool:
    return elapsed >= max_seconds or (rounds >= min_rounds and elapsed >= min_seconds)


def _time_block(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> tuple[float, float]:
    """When it began, and what a run took."""
    if not seconds:
        return _time_once(run, clock)
    run()
    begin, taken = clock(), [_time_once(run, clock)[1]]
    while clock() - begin < seconds:
        taken.append(_time_once(run, clock)[1])
    return begin, float(np.median(taken))


def _time_once(run: Callable[[], object], clock: Callable[[], float]) -> tuple[float, float]:
    begin = clock()
    run()
    return begin, clock() - begin


def time_ratio(
    candidate: Samples,
    baseline: Samples,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Ratio:
    """Median time of ``candidate`` divided by that of ``baseline``: below 1 the candidate is faster.

    The interval is that of the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap,
    section 13.3). It draws rounds, not samples, because the two times of a round share the machine's state.

    Raises:
        ValueError: if the two were not timed in the same rounds.
    """
    if len(candidate.seconds) != len(baseline.seconds):
        raise ValueError("the samples to compare come from different rounds")
    times = np.array([candidate.seconds, baseline.seconds])
    draws = np.random.default_rng(seed).integers(times.shape[1], size=(resamples, times.shape[1]))
    medians = np.median(times[:, draws], axis=-1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    return Ratio(candidate.median / baseline.median, float(low), float(high), confidence)

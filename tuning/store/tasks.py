"""Results of tuning by task: the time of the best variant, and failures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sartor.tuning.records.measurement import Measurement, Status

# Suffixes of records that are not times of a task: times of layers in a network (older versions did not tell in which
# run), of a network with the sizes of a call, first inferences, checks, and ends of searches.
_PART = re.compile(r":(in-place(:\w+)?|first|verified|searched|call:\d+)\Z")


@dataclass(frozen=True)
class TaskResult:
    """The measurements of one task on one machine, with one runtime, backend and thread count.

    Attributes:
        best: the fastest variant; None if all failed.
        seconds: its time, scaled to ``stock_seconds``; None if all failed.
        stock_seconds: candidate 0's time; None if nothing was compared with it.
        variants: the latest measurement of every variant, sorted by descriptor.
    """

    best: Measurement | None
    seconds: float | None
    stock_seconds: float | None
    variants: tuple[Measurement, ...]

    @property
    def failures(self) -> tuple[Measurement, ...]:
        """Measurements of variants that failed."""
        return tuple(variant for variant in self.variants if variant.status is not Status.OK)

    @property
    def disturbed(self) -> tuple[Measurement, ...]:
        """Measurements during which other programs took processors; a later compilation may repeat them."""
        return tuple(variant for variant in self.variants if variant.foreign_load)


def task_results(measurements: Iterable[Measurement]) -> Iterator[TaskResult]:
    """Yield the results by task. ``measurements`` are sorted by key, as ``Store.measurements`` returns them."""
    for _, group in groupby(measurements, lambda measurement: measurement.key.task):
        variants: dict[tuple[str, str, str, int], list[Measurement]] = defaultdict(list)
        for measurement in group:
            if measurement.status is not Status.OK or not _PART.search(measurement.key.variant):
                key = measurement.key
                variants[key.hardware, key.runtime, key.backend, key.threads].append(measurement)
        for _, listed in sorted(variants.items()):
            yield _result(_latest(listed))


def _latest(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The newest measurement of each variant; older ones are of code that it no longer emits."""
    latest: dict[str, Measurement] = {}
    for measurement in measurements:
        known = latest.get(measurement.key.variant)
        if known is None or known.created < measurement.created:
            latest[measurement.key.variant] = measurement
    return tuple(latest[name] for name in sorted(latest))


def _result(variants: tuple[Measurement, ...]) -> TaskResult:
    correct = [variant for variant in variants if variant.status is Status.OK]
    if not correct:
        return TaskResult(None, None, None, variants)
    stock = _stock_seconds(correct)
    times = [
        (measurement.time if stock is None else measurement.time_at(stock), measurement) for measurement in correct
    ]
    seconds, best = min(times, key=lambda pair: pair[0])
    return TaskResult(best, seconds, stock, variants)


def _stock_seconds(correct: Sequence[Measurement]) -> float | None:
    """Candidate 0's time. The other variants have baseline samples, candidate 0 has none."""
    compared = [measurement for measurement in correct if measurement.baseline_samples]
    if not compared:
        return None
    alone = [measurement for measurement in correct if not measurement.baseline_samples]
    return alone[0].time if alone else replace(compared[0], samples=compared[0].baseline_samples).time

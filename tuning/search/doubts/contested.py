"""Finds the measurements that were disturbed by other programs and that decide between variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import NO_TIME, Measurement, Status

# Other programs change the ratio of two times by less than that, or the check of the slower one by a factor finds it.
_NEAR = 1.5


def contested(cases: Sequence[BenchmarkCase], known: Mapping[str, Mapping[str, Measurement]]) -> list[BenchmarkCase]:
    """The cases whose fastest variants were measured while other programs took processors, with these variants.

    Args:
        cases: tasks with their variants; candidate 0 comes first.
        known: measurements by task key and descriptor.
    """
    return [
        contested_layer for case in cases if (contested_layer := _contested(case, known.get(case.key, {}))) is not None
    ]


def _contested(case: BenchmarkCase, known: Mapping[str, Measurement]) -> BenchmarkCase | None:
    first, *others = case.variants
    right = {name: measurement for name, measurement in known.items() if measurement.status is Status.OK}
    if not right:
        return None
    stock = right.get(first.descriptor)
    times = {
        name: measurement.time if stock is None else measurement.time_at(stock.time)
        for name, measurement in right.items()
    }
    least = min((time for time in times.values() if time > NO_TIME), default=0.0)
    near = {name for name, seconds in times.items() if seconds <= _NEAR * least}
    if not any(right[name].foreign_load for name in near):
        return None
    return replace(case, variants=(first, *(other for other in others if other.descriptor in near)))

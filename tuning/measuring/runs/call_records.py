"""Measurements of a variant of open sizes with those of each call, which are stored apart, and their mean.

So a distribution of the same sizes with other shares needs no measuring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

Samples = Sequence[tuple[float, ...]]


def call_keys(case: BenchmarkCase, key: MeasurementKey) -> list[MeasurementKey]:
    """The keys of a variant's measurements with the sizes of each call that counts; ``key`` is that of the mean."""
    return [replace(key, task=case.key_at(call)) for call in case.timed]


def measurements_by_call(
    case: BenchmarkCase, mean: Measurement, by_call: Samples, baseline_by_call: Samples
) -> list[Measurement]:
    """A measurement for each call that counts and was timed, from one of their mean; all fail if that did."""
    none = [()] * len(case.timed)
    rows = zip(call_keys(case, mean.key), case.timed, by_call or none, baseline_by_call or none, strict=True)
    return [
        replace(mean, key=key, samples=samples, baseline_samples=baseline, facts=call.facts)
        for key, call, samples, baseline in rows
        if samples or mean.status is not Status.OK
    ]


def mean_measurement(
    case: BenchmarkCase, key: MeasurementKey, known: Mapping[MeasurementKey, Measurement]
) -> Measurement | None:
    """The mean over calls by their shares, with ``key``, or the first failure; None if a call is unknown."""
    rows = [known[row] for row in call_keys(case, key) if row in known]
    if not rows or len(rows) < len(case.timed):
        return None
    failed = next((row for row in rows if row.status is not Status.OK), None)
    if failed is not None:
        return replace(failed, key=key, facts=case.facts)
    shares = [call.of.share for call in case.timed]
    errors = [row.error for row in rows if row.error is not None]
    return replace(
        rows[0],
        key=key,
        samples=_mean(shares, (row.samples for row in rows)),
        baseline_samples=_mean(shares, (row.baseline_samples for row in rows)),
        error=max(errors, default=None),
        created=min(row.created for row in rows),
        facts=case.facts,
        foreign_load=max(row.foreign_load for row in rows),
    )


def _mean(shares: Sequence[float], samples: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """The mean of each first sample, each second, and so on, as far as all calls have one."""
    return tuple(
        sum(share * seconds for share, seconds in zip(shares, taken, strict=True))
        for taken in zip(*samples, strict=False)
    )

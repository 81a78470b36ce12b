"""Finds out what variants take longer when they run for the first time, from the store or by measuring."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sartor.codegen.digest import digest
from sartor.codegen.source_digest import source_digest
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.runs.first_execution import Executions, first_executions
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, typical_time
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobStatus, WorkerPool

_LOG = logging.getLogger(__name__)
_FIRST = "first execution, "
"""Begins the backend of such measurements, which so are none of later executions."""
_TIMEOUT = 120.0


def first_runs(cases: Iterable[BenchmarkCase], tuner: Tuner, pool: WorkerPool) -> dict[tuple[str, str], float]:
    """Seconds that variants take longer in their first execution, by case key and descriptor.

    Variants that were not measured in time, or fail, are missing.

    Args:
        cases: variants that are known to be right.
        tuner: of their device; has or makes their modules, and the store.
        pool: workers that measure.
    """
    listed = list(cases)
    known, doubts = _known(listed, tuner), Doubts(pool.is_quiet)
    holding = {name: measurement for name, measurement in known.items() if not doubts.about(measurement)}
    missing = [left for case in listed if (left := _without(case, holding)).variants]
    if missing and not tuner.is_late:
        _measure(missing, tuner, pool)
        known = _known(listed, tuner)
    return {
        (case.key, variant.descriptor): excess(known[case.key, variant.descriptor])
        for case in listed
        for variant in case.variants
        if (case.key, variant.descriptor) in known
    }


def excess(measured: Measurement) -> float:
    """Seconds that the first execution took longer than later ones of the same loaded code; never negative."""
    # What was imported may have any number of either.
    differences = (first - later for first, later in zip(measured.samples, measured.baseline_samples, strict=False))
    excesses = tuple(max(difference, 0.0) for difference in differences)
    return max(0.0, typical_time(excesses)) if excesses else 0.0


def _key(case: BenchmarkCase, descriptor: str, tuner: Tuner) -> MeasurementKey:
    known = tuner.key(case, descriptor)
    source = digest(known.source, source_digest(first_executions.__module__))
    return replace(known, source=source, backend=_FIRST + known.backend)


def _known(cases: Iterable[BenchmarkCase], tuner: Tuner) -> dict[tuple[str, str], Measurement]:
    keys = {
        (case.key, variant.descriptor): _key(case, variant.descriptor, tuner)
        for case in cases
        for variant in case.variants
    }
    measurements = tuner.store.get_many(keys.values())
    return {
        name: measurements[key]
        for name, key in keys.items()
        if key in measurements and measurements[key].status is Status.OK
    }


def _without(case: BenchmarkCase, known: Mapping[tuple[str, str], Measurement]) -> BenchmarkCase:
    return replace(
        case, variants=tuple(variant for variant in case.variants if (case.key, variant.descriptor) not in known)
    )


def _measure(cases: list[BenchmarkCase], tuner: Tuner, pool: WorkerPool) -> None:
    modules, probe = tuner.modules_of(cases), tuner.probe()
    target, threads = tuner.target, tuner.target.threads
    common = {"probe": probe, "device": target.device, "threads": threads}
    named = [
        {variant.descriptor: modules.get((case.key, variant.descriptor)) for variant in case.variants} for case in cases
    ]
    files = [{name: path for name, path in paths.items() if path is not None} for paths in named]
    jobs = [
        (str(index), {"case": case, "modules": modules_of_case, **common})
        for index, (case, modules_of_case) in enumerate(zip(cases, files, strict=True))
        if modules_of_case
    ]
    done = 0
    ended = pool.map_unordered(entry_point(first_executions), jobs, _TIMEOUT, quiet=True, deadline=tuner.deadline)
    for result in ended:
        case, done = cases[int(result.job_id)], done + 1
        tuner.progress("measuring first executions", done, len(jobs))
        if result.status is not JobStatus.OK:
            _LOG.info("the first execution of variants of %s was not measured: %s", case.key, result.message)
            continue
        for descriptor, executions in result.value.items():
            _put(_key(case, descriptor, tuner), executions, tuner, result.others)


def _put(key: MeasurementKey, executions: Executions, tuner: Tuner, others: float) -> None:
    tuner.store.put(Measurement(key, Status.OK, executions.first, executions.later, foreign_load=others))

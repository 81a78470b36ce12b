"""Peak operations and memory bandwidth of the machine, measured like layers and stored in the same database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.costing.layer_costs import make_tuner
from sartor.errors import DeviceError
from sartor.frontend.loading import open_workers
from sartor.progress import Progress, silent
from sartor.tuning.cost_tables.roofline import Limit, Measured, peak_operations, read_bandwidth
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool


@dataclass(frozen=True)
class MachineLimits:
    """The two limits of the roofline model.

    Attributes:
        threads: number of CPU workers.
        operations: f32 operations per second, a multiply-add counting as two.
        bandwidth: bytes read from memory per second.
    """

    threads: int
    operations: float
    bandwidth: float


def machine_limits(
    target: Target, threads: Iterable[int], database: Path, progress: Progress = silent
) -> list[MachineLimits]:
    """Peak operations and bandwidth for each number of threads; measured if the database lacks them.

    Args:
        target: device and architecture.
        threads: numbers of CPU workers, one result for each.
        database: file of the tuning database.
        progress: told what is going on.

    Raises:
        DeviceError: if the machine cannot run the benchmarks.
        SartorError: if the database or the target cannot be used.
    """
    with open_workers(target, jobs=1) as pool, Store.open(database, goes_on=True) as store:
        return [_limits(replace(target, threads=thread), store, pool, progress) for thread in threads]


def _limits(target: Target, store: Store, pool: WorkerPool, progress: Progress) -> MachineLimits:
    operations = peak_operations(target, target.threads)
    bandwidth = read_bandwidth(target)
    measured = make_tuner(store, pool, target, progress).measure([operations.case, bandwidth.case])
    return MachineLimits(target.threads, _rate(operations, measured), _rate(bandwidth, measured))


def _rate(limit: Limit, measured: Measured) -> float:
    rate = limit.per_second(measured)
    if rate is None:
        (failed,) = measured[limit.case.key].values()
        raise DeviceError(f"what this machine does at most cannot be measured: {failed.message}")
    return rate

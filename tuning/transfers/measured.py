"""Times of transfers, from the store or measured."""

from __future__ import annotations

from itertools import permutations

from sartor.codegen.ir.target import Target
from sartor.codegen.source_digest import source_digest
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from sartor.tuning.transfers.times import Transfers, TransferTimes
from sartor.tuning.transfers.transfer_job import time_transfers
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_TASK = "transfer"
_SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_TIMEOUT = 120.0


def measured_transfers(store: Store, pool: WorkerPool, target: Target) -> Transfers:
    """Times of transfers between all devices of a target, in both directions; none for a target of one device.

    Raises:
        DeviceError: if a device cannot be used.
        CompileError: if the worker dies.
    """
    pairs = permutations(target.each, 2)
    return {(one.device, other.device): _times(store, pool, one, other) for one, other in pairs}


def _times(store: Store, pool: WorkerPool, source: Target, target: Target) -> TransferTimes:
    keys = {size: _key(source, target, size, store.hardware) for size in _SIZES}
    known = dict(store.get_many(keys.values()))
    if len(known) < len(keys):
        job = {"source": source, "target": target, "sizes": _SIZES}
        step = f"timing transfers from {source} to {target}"
        pool.take_others()
        samples = call(pool, time_transfers, job, step, _TIMEOUT, quiet=True)
        others = pool.take_others()
        known = {
            keys[size]: Measurement(keys[size], Status.OK, taken, foreign_load=others)
            for size, taken in samples.items()
        }
        store.put_many(known.values())
    return TransferTimes.of({size: known[key].time for size, key in keys.items()})


def _key(source: Target, target: Target, size: int, hardware: str) -> MeasurementKey:
    return MeasurementKey(
        task=_TASK,
        variant=f"{source.device} to {target.device} {size} B",
        source=source_digest(time_transfers.__module__),
        hardware=hardware,
        threads=max(source.threads, target.threads),
        runtime=runtime_key(),
        backend=f"{source.key} {target.key}",
    )

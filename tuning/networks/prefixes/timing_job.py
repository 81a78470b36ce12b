"""Worker side: time the beginnings of a network in turn, where the device does not tell how long a dispatch takes.

Each beginning runs as users' networks do, without a profiler: the longer one of two contains the same dispatches in the
same order, and one piece more. Results go into buffers that are there: they are larger than the network's, and new
memory would take longer than the pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.iree_runtime import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.waiting import busiest_seconds
from sartor.runtime.manifest import BOUND_SUFFIX
from sartor.runtime.module import open_module
from sartor.tuning.measuring.measure_job import call_overhead
from sartor.tuning.networks.prefixes.piece_times import PrefixEntry, piece_times
from sartor.tuning.workers.calls import WorkerError

_ROUNDS, _LEAST_ROUNDS = 30, 6
_WARM_UP = 2


def time_prefixes(
    module: Path,
    entries: Sequence[PrefixEntry],
    inputs: Sequence[Array],
    target: Target,
    probe: Path,
    seconds: float,
) -> tuple[Dispatch, ...] | WorkerError:
    """Worker side: run the beginnings in turn; returns the pieces whose times can be told from noise.

    Args:
        module: with the beginnings.
        entries: of the module.
        inputs: of the network.
        target: what it is compiled for.
        probe: a module whose time is the cost of a call.
        seconds: after that time no further round begins.
    """
    try:
        device = open_device(target.device, target.threads if target.device == "cpu" else None)
        program = Program(open_module(module).native, module.name, device, {})
        given = [upload(each, device) for each in inputs]
        results = [
            [upload(np.zeros(tensor.shape, tensor.numpy_dtype), device) for tensor in each.results] for each in entries
        ]
        runs = [
            program.prepare(each.name + BOUND_SUFFIX, [array.view for array in (*given, *own)])
            for each, own in zip(entries, results, strict=True)
        ]
        samples: list[list[float]] = [[] for _ in runs]
        taken = busiest_seconds if device.software else _elapsed
        begin = time.perf_counter()
        for done in range(_ROUNDS):
            if done >= _LEAST_ROUNDS and time.perf_counter() - begin > seconds:
                break
            for place in range(len(runs)) if done % 2 else reversed(range(len(runs))):
                samples[place].append(taken(runs[place]))
        # The threads of a software driver tell the time that they computed, which a call adds nothing to.
        overhead = 0.0 if device.software else call_overhead(probe, target.device, target.threads)
    except DeviceError as failure:
        return WorkerError(failure)
    # In the first two rounds memory is allocated, and a driver compiles.
    return piece_times(entries, [each[_WARM_UP:] for each in samples], overhead)


def _elapsed(run: Callable[[], object]) -> float:
    """Seconds that a run takes by the clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start

"""Worker side: time the beginnings of a network in turn, where the device does not tell how long a dispatch takes.

Each beginning runs as users' networks do, without a profiler: the longer one of two contains the same dispatches in the
same order, and one piece more. Results go into buffers that are there: they are larger than the network's, and new
memory would take longer than the pieces.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.waiting import busiest_seconds
from sartor.runtime.manifest import BOUND_SUFFIX
from sartor.runtime.module import open_module
from sartor.tuning.measuring.measure_job import call_overhead
from sartor.tuning.measuring.runs.gpu_clock import ReadClock, clock_of
from sartor.tuning.measuring.runs.steady_clock import ClockedRuns
from sartor.tuning.networks.prefixes.piece_times import PrefixEntry, piece_times
from sartor.tuning.workers.protocol import WorkerError

_ROUNDS, _LEAST_ROUNDS = 28, 4
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
        device = open_device(target.device, target.threads if target.is_cpu else None)
        program = Program(open_module(module).native, module.name, device, {})
        given = [upload(input_, device) for input_ in inputs]
        results = [
            [upload(np.zeros(tensor.shape, tensor.numpy_dtype), device) for tensor in entry.results]
            for entry in entries
        ]
        runs = [
            program.prepare(entry.name + BOUND_SUFFIX, [array.view for array in (*given, *own)])
            for entry, own in zip(entries, results, strict=True)
        ]
        taken = busiest_seconds if device.software else _elapsed
        samples = _in_turn([functools.partial(taken, run) for run in runs], clock_of(target.device), seconds)
        # The threads of a software driver tell the time that they computed, which a call adds nothing to.
        overhead = 0.0 if device.software else call_overhead(probe, target.device, target.threads)
    except DeviceError as failure:
        return WorkerError(failure)
    return piece_times(entries, samples, overhead)


def _in_turn(runs: Sequence[Callable[[], float]], clock: ReadClock | None, seconds: float) -> list[Sequence[float]]:
    """Samples of each run; those that were taken while the device's clock was low are taken again, for at most as long.

    Args:
        runs: each returns its seconds.
        clock: of the device; None if it is not known.
        seconds: after that time no further round begins.
    """
    named = {str(place): run_of_place for place, run_of_place in enumerate(runs)}
    # In the first two rounds memory is allocated, and a driver compiles.
    for run in [*named.values()] * _WARM_UP:
        run()
    clocked = None if clock is None else ClockedRuns(named, clock)
    made = named if clocked is None else clocked.by_name
    samples: dict[str, list[float]] = {name: [] for name in named}
    begin = time.perf_counter()
    for done in range(_ROUNDS):
        if done >= _LEAST_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for name in made if done % 2 else reversed(made):
            samples[name].append(made[name]())
    times_of_runs = samples if clocked is None else clocked.steady(samples, seconds)
    return [times_of_runs[name] for name in named]


def _elapsed(run: Callable[[], object]) -> float:
    """Seconds that a run takes by the clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start

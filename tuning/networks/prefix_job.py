"""Worker side: time the beginnings of a network in turn, where the device does not tell how long a dispatch takes.

Each beginning runs as users' networks do, without a profiler: the longer one of two contains the same dispatches in the
same order, and one piece more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.functions.prefixes import choose, prefixes_of
from sartor.codegen.linking.overwriting import plain_name
from sartor.codegen.linking.stitching import compile_stitched, stitch
from sartor.errors import DeviceError
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.iree_runtime import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from sartor.tuning.measuring.measure_job import call_overhead
from sartor.tuning.networks.build_job import SplitNetwork, stitchings
from sartor.tuning.records.measurement import typical_time
from sartor.tuning.workers.calls import WorkerError

_MOST_PIECES = 64
_ROUNDS, _LEAST_ROUNDS = 30, 4


@dataclass(frozen=True)
class PrefixEntry:
    """An exported beginning of a network.

    Attributes:
        name: of the function.
        symbol: of the piece that it ends with.
        length: number of pieces.
    """

    name: str
    symbol: str
    length: int


def build_prefixes(
    net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target, path: Path
) -> list[PrefixEntry]:
    """Worker side: compile the beginnings of a network on one device, with weights inside; returns them, the shortest
    first.

    Raises:
        CompileError: with IREE's diagnostic.
        ValueError: if the network is on several devices.
    """
    ((_, stitching),) = stitchings(net, weights, target).items()
    (whole,) = stitching.entries
    symbols = {name: plain_name(piece.symbol) for name, piece in stitching.pieces.items()}
    code = {name: piece.implementation for name, piece in stitching.pieces.items()}
    every = prefixes_of(whole, symbols, code)
    lengths = {each.entry.name: place for place, each in enumerate(every, 1)}
    chosen = choose(every, _MOST_PIECES)
    stitched = stitch(replace(stitching, entries=tuple(each.entry for each in chosen)), target, "")
    compile_stitched(stitched, target, path)
    return [PrefixEntry(each.entry.name, each.symbol, lengths[each.entry.name]) for each in chosen]


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
        module: by ``build_prefixes``.
        entries: of the module.
        inputs: of the network.
        target: what it is compiled for.
        probe: a module whose time is the cost of a call.
        seconds: after that time no further round begins.
    """
    try:
        device = open_device(target.device, target.threads if target.device == "cpu" else None)
        program = Program(open_module(module).native, module.name, device, {})
        views = [upload(each, device).view for each in inputs]
        samples: dict[str, list[float]] = {each.name: [] for each in entries}
        begin = time.perf_counter()
        for done in range(_ROUNDS):
            if done >= _LEAST_ROUNDS and time.perf_counter() - begin > seconds:
                break
            for each in entries if done % 2 else reversed(entries):
                start = time.perf_counter()
                program.invoke(each.name, views)
                samples[each.name].append(time.perf_counter() - start)
        overhead = call_overhead(probe, target.device, target.threads)
    except DeviceError as failure:
        return WorkerError(failure)
    # In the first two rounds memory is allocated, and a driver compiles.
    return piece_times(entries, [samples[each.name][2:] for each in entries], overhead)


def piece_times(
    entries: Sequence[PrefixEntry], samples: Sequence[Sequence[float]], overhead: float
) -> tuple[Dispatch, ...]:
    """Times of pieces, from those of beginnings; a piece that is timed at several places has them as calls.

    A longer beginning takes no less time, so times are made to grow, by the least change (pool adjacent violators:
    Barlow and others, 1972). A difference that is smaller than the spread of both times tells nothing and is left out.

    Args:
        entries: the shortest first.
        samples: seconds of each.
        overhead: seconds of a call without pieces.
    """
    taken = [typical_time(each) for each in samples]
    spreads = [median(each) - time for each, time in zip(samples, taken, strict=True)]
    ends = [overhead, *growing(taken)]
    found: dict[str, list[float]] = {}
    for place, each in enumerate(entries):
        before = entries[place - 1].length if place else 0
        took, spread = ends[place + 1] - ends[place], max(spreads[max(place - 1, 0)], spreads[place])
        if each.length == before + 1 and took > spread:
            found.setdefault(each.symbol, []).append(took)
    return tuple(Dispatch(symbol, len(each), sum(each)) for symbol, each in found.items())


def growing(values: Sequence[float]) -> list[float]:
    """The nearest sequence, by least squares, that does not decrease."""
    pools: list[tuple[float, int]] = []
    for each in values:
        mean, count = each, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]

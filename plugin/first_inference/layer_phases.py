"""The phases of a first inference by layers: reading and executing, and what executing takes later.

Reading is told by the thread of a session that reads the file ahead: weights lie in the file in the order of execution,
so that the bytes of each layer are a part of what the thread has read. Executing is told by IREE's profiler, in fresh
processes whose files are in memory.

IREE's benchmark tool runs the module, as its library for Python offers no profiler. The tool reads the module into
memory before the first inference, so that no dispatch waits for a file.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from sartor.codegen.linking.overwriting import plain_name
from sartor.errors import DeviceError
from sartor.first_inference.cold_bench import STOCK, ColdRuns, output_of, tool_arguments
from sartor.first_inference.sample import FirstRun
from sartor.runtime.driver.iree_runtime import tool
from sartor.runtime.several.record import without_plan
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import Plan
from sartor.workspace import workspace

_SECOND = 1e9
_EVENT = "host_dispatch_event"


@dataclass(frozen=True)
class DispatchEvent:
    """A dispatch that ran: its name without that of its plan, begin and end in seconds by some clock."""

    name: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


Inference = tuple[DispatchEvent, ...]
"""The dispatches of an inference, in the order in which they began."""


def dispatch_events(runs: ColdRuns, folder: Path) -> list[Inference]:
    """The inferences of a fresh process on a CPU, the first one first.

    Args:
        runs: what is timed.
        folder: for the profile and the inputs.

    Raises:
        DeviceError: if IREE's tools fail, or report no dispatches.
    """
    profile = folder / "first.ireeprof"
    settings = {
        "module_mode": "preload",
        "device_profiling_mode": "queue-events,host-execution",
        "device_profiling_output": str(profile),
        "benchmark_min_time": f"{runs.runs}x",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    output_of(STOCK, [str(tool("iree-benchmark-module")), *tool_arguments(runs, folder), *options])
    shown = ["dispatch", "--dispatch_events", "--format=jsonl", str(profile)]
    lines = output_of(STOCK, [str(tool("iree-profile")), *shown]).splitlines()
    return inferences(lines, runs.runs)


def inferences(lines: Sequence[str], count: int) -> list[Inference]:
    """The dispatches of ``count`` inferences, which all have the same ones, from the profiler's records.

    Raises:
        DeviceError: if there are none, or an inference has more than another.
    """
    records = [json.loads(line) for line in lines if line.strip()]
    events = sorted(
        (
            DispatchEvent(
                without_plan(record["key"]),
                record["start_host_time_ns"] / _SECOND,
                record["end_host_time_ns"] / _SECOND,
            )
            for record in records
            if record["type"] == _EVENT
        ),
        key=lambda event: event.begin,
    )
    size, left = divmod(len(events), count)
    if left or not size:
        raise DeviceError(f"IREE's profiler reported {len(events)} dispatches of {count} equal inferences")
    return [tuple(events[begin : begin + size]) for begin in range(0, len(events), size)]


REST = "the rest"
"""Stands for what belongs to no layer: the file's code and directory, and the time between dispatches."""
Times = dict[str, float]
"""Seconds by the name of the layer."""


@dataclass(frozen=True)
class LayerPhases:
    """What a layer takes, in seconds: medians of processes. Conversions count to the layer that needs them.

    Attributes:
        layer: its name, or ``REST``.
        weight_bytes: of its packed weights in the file; those that several layers share count for each.
        read: by state of the files; a state is missing if nothing told when the file was read, as for a small one.
        first: executing it in the first inference.
        later: executing it in a later one.
    """

    layer: str
    weight_bytes: int
    read: Mapping[str, float]
    first: float
    later: float


@dataclass(frozen=True)
class Phases:
    """The phases of a network's layers, and of the whole.

    Attributes:
        layers: in the order of execution; the last entry is what belongs to none.
        first: seconds of executing the first inference, from its first dispatch to the end of its last: the median of
            processes, which is near the sum over the layers.
        later: the same of a later inference.
    """

    layers: tuple[LayerPhases, ...]
    first: float
    later: float


def layer_phases(runs: ColdRuns, plan: Plan, network: Network, reading: Mapping[str, Sequence[FirstRun]]) -> Phases:
    """Time a module's layers, each round in a fresh process.

    Args:
        runs: what is timed, on a CPU.
        plan: of the module.
        network: its layers.
        reading: first inferences of sessions, by state of the files.

    Raises:
        DeviceError: if a process fails.
    """
    with workspace() as folder:
        processes = [dispatch_events(runs, folder) for _ in range(runs.rounds)]
    return phases_of(processes, plan, network, reading)


def phases_of(
    processes: Sequence[Sequence[Inference]], plan: Plan, network: Network, reading: Mapping[str, Sequence[FirstRun]]
) -> Phases:
    """The phases of layers, from the inferences of each process; otherwise as ``layer_phases``."""
    first = [process[0] for process in processes]
    later = [inference for process in processes for inference in process[len(process) // 2 :]]
    sizes = {layer.name: sum(weight.bytes for weight in layer.weights) for layer in network.layers}
    read = {state: _medians([_read(run, sizes) for run in runs]) for state, runs in reading.items()}
    executed = [_medians([_executed(events, plan) for events in executions]) for executions in (first, later)]
    layers = (
        LayerPhases(
            name,
            sizes.get(name, 0),
            {state: times[name] for state, times in read.items() if times},
            *(times.get(name, 0.0) for times in executed),
        )
        for name in (*sizes, REST)
    )
    return Phases(tuple(layers), *(median(map(_span, executions)) for executions in (first, later)))


def _medians(executions: Sequence[Times]) -> Times:
    """By layer the median; empty if one tells nothing."""
    return {name: median(times[name] for times in executions) for name in executions[0]} if all(executions) else {}


def _span(inference: Inference) -> float:
    return max(event.end for event in inference) - inference[0].begin


def _executed(inference: Inference, plan: Plan) -> Times:
    """Seconds of an inference by layers; what is left of it counts as ``REST``."""
    owners = _owners(plan)
    events: defaultdict[str, list[DispatchEvent]] = defaultdict(list)
    for event in inference:
        events[plain_name(event.name)].append(event)
    taken: defaultdict[str, float] = defaultdict(float)
    for name, alike in events.items():
        own = owners.get(name.partition("_")[0], [])
        # IREE keeps one of several dispatches with the same code, whose calls then are not only its own layers'.
        times, left = divmod(len(alike), len(own)) if own else (0, len(alike))
        for number, event in enumerate(alike):
            taken[REST if left else own[number // times]] += event.seconds
    taken[REST] += _span(inference) - _busy(inference)
    return dict(taken)


def _busy(inference: Inference) -> float:
    """Seconds in which a dispatch executed; those of several workers may overlap."""
    total, until = 0.0, -math.inf
    for event in sorted(inference, key=lambda event: event.begin):
        total += max(0.0, event.end - max(event.begin, until))
        until = max(until, event.end)
    return total


def _owners(plan: Plan) -> dict[str, list[str]]:
    """The layers that run each symbol, in the order of execution: their own code, and that of conversions for them."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    names = [choice.layer for choice in plan.layers]
    converted = [
        (adapt.consumer if adapt.consumer in names else adapt.producer, adapt.symbol)
        for adapt in plan.adapts
        if adapt.seconds
    ]
    for layer in plan.layers:
        for owner, symbol in converted:
            if owner == layer.layer:
                owners[symbol].append(owner)
        owners[layer.symbol].append(layer.layer)
    return dict(owners)


def _read(run: FirstRun, sizes: Mapping[str, int]) -> Times:
    """Seconds of reading each layer's weights, and the rest of the files; empty if nothing was read ahead."""
    steps = [(size, end - begin) for kind, begin, end, size in run.steps if kind == "read"]
    if not steps:
        return {}
    places, seconds = ([0, *np.cumsum(step)] for step in zip(*steps, strict=True))
    ends = np.interp([0, *np.cumsum([*sizes.values()])], places, seconds)
    taken = {name: float(end - begin) for name, (begin, end) in zip(sizes, pairwise(ends), strict=True)}
    return {**taken, REST: float(seconds[-1] - ends[-1])}

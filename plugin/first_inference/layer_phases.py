"""The phases of a first inference by layers: reading and executing, and what executing takes later.

Reading is told by the thread of a session that reads the file ahead: weights lie in the file in the order of execution,
so that the bytes of each layer are a part of what the thread has read. Executing is told by IREE's profiler, in fresh
processes whose files are in memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from sartor.codegen.linking.overwriting import plain_name
from sartor.first_inference.cold_bench import ColdRuns
from sartor.first_inference.dispatch_events import DispatchEvent, Inference, dispatch_events
from sartor.first_inference.sample import FirstRun
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import Plan
from sartor.workspace import workspace

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
    read = {state: _medians([_read(run, sizes) for run in found]) for state, found in reading.items()}
    executed = [_medians([_executed(each, plan) for each in found]) for found in (first, later)]
    layers = (
        LayerPhases(
            name,
            sizes.get(name, 0),
            {state: times[name] for state, times in read.items() if times},
            *(times.get(name, 0.0) for times in executed),
        )
        for name in (*sizes, REST)
    )
    return Phases(tuple(layers), *(median(map(_span, found)) for found in (first, later)))


def _medians(found: Sequence[Times]) -> Times:
    """By layer the median; empty if one tells nothing."""
    return {name: median(each[name] for each in found) for name in found[0]} if all(found) else {}


def _span(inference: Inference) -> float:
    return max(each.end for each in inference) - inference[0].begin


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
    for event in sorted(inference, key=lambda each: each.begin):
        total += max(0.0, event.end - max(event.begin, until))
        until = max(until, event.end)
    return total


def _owners(plan: Plan) -> dict[str, list[str]]:
    """The layers that run each symbol, in the order of execution: their own code, and that of conversions for them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    names = [each.layer for each in plan.layers]
    converted = [
        (adapt.consumer if adapt.consumer in names else adapt.producer, adapt.symbol)
        for adapt in plan.adapts
        if adapt.seconds
    ]
    for layer in plan.layers:
        for owner, symbol in converted:
            if owner == layer.layer:
                found[symbol].append(owner)
        found[layer.symbol].append(layer.layer)
    return dict(found)


def _read(run: FirstRun, sizes: Mapping[str, int]) -> Times:
    """Seconds of reading each layer's weights, and the rest of the files; empty if nothing was read ahead."""
    steps = [(size, end - begin) for kind, begin, end, size in run.steps if kind == "read"]
    if not steps:
        return {}
    places, seconds = ([0, *np.cumsum(each)] for each in zip(*steps, strict=True))
    ends = np.interp([0, *np.cumsum([*sizes.values()])], places, seconds)
    taken = {name: float(end - begin) for name, (begin, end) in zip(sizes, pairwise(ends), strict=True)}
    return {**taken, REST: float(seconds[-1] - ends[-1])}

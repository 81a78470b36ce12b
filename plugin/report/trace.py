"""Inferences as a trace in the format of Chrome and Perfetto (https://ui.perfetto.dev).

Trace Event Format: complete events (``X``) with times in microseconds, and metadata events (``M``) that name processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sartor.runtime.benchmark import Samples
from sartor.runtime.dispatch_statistics import DispatchStatistics
from sartor.tuning.cost_tables.in_network import call_seconds
from sartor.tuning.records.plan import Plan

_MICRO = 1e6
_LAYERS = "layers of one inference, by their mean times"


@dataclass(frozen=True)
class Slice:
    """A layer or a conversion: its name, its seconds, and facts to show."""

    name: str
    seconds: float
    facts: Mapping[str, str]


def slices_of(statistics: DispatchStatistics, plan: Plan | None) -> list[Slice]:
    """The layers and the conversions before them, in execution order, with their times; dispatches without a plan."""
    if plan is None or plan.unsplit:
        return [Slice(one.name, one.seconds, {"calls": str(one.calls)}) for one in statistics.dispatches]
    taken = call_seconds(statistics.dispatches)
    slices: list[Slice] = []
    for layer in plan.layers:
        slices += [
            Slice(f"{adapt.producer} -> {layer.layer}", taken[adapt.symbol], {"from": adapt.source, "to": adapt.target})
            for adapt in plan.adapts
            if adapt.consumer == layer.layer and adapt.seconds and adapt.symbol in taken
        ]
        if layer.symbol in taken:
            slices.append(Slice(layer.layer, taken[layer.symbol], {"routine": layer.variant}))
    return slices


def trace(samples: Mapping[str, Samples], layers: Sequence[Slice] = ()) -> dict[str, Any]:
    """A trace of inferences, and below them of the layers of one.

    Inferences are where they were in time, a process for each runtime. Of layers only mean times are known, so they
    stand one after another in a process of their own, from the beginning of the first inference.

    Args:
        samples: by name of the runtime, with the times at which they began.
        layers: in execution order.
    """
    start = min((runs.begins[0] for runs in samples.values() if runs.begins), default=0.0)
    events: list[dict[str, Any]] = []
    for process, (name, runs) in enumerate(samples.items(), 1):
        events.append(_named(process, name))
        for number, (begin, taken) in enumerate(zip(runs.begins, runs.seconds, strict=True)):
            events.append(_complete("inference", begin - start, taken, process, {"number": str(number)}))
    if layers:
        process, begin = len(samples) + 1, 0.0
        events.append(_named(process, _LAYERS))
        for layer in layers:
            events.append(_complete(layer.name, begin, layer.seconds, process, layer.facts))
            begin += layer.seconds
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 1, "args": {"name": name}}


def _complete(name: str, begin: float, seconds: float, process: int, facts: Mapping[str, str]) -> dict[str, Any]:
    times = {"ts": begin * _MICRO, "dur": seconds * _MICRO}
    return {"ph": "X", "name": name, "cat": "inference", **times, "pid": process, "tid": 1, "args": dict(facts)}

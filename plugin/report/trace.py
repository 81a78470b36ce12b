"""Inferences as a trace in the format of Chrome and Perfetto (https://ui.perfetto.dev).

Trace Event Format: complete events (``X``) with times in microseconds, and metadata events (``M``) that name processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sartor.runtime.benchmark import Samples

_MICRO = 1e6
_LAYERS = "layers of one inference, by their mean times"


@dataclass(frozen=True)
class Slice:
    """A layer or a conversion: its name, its seconds, and facts to show."""

    name: str
    seconds: float
    facts: Mapping[str, str]


def trace(samples: Mapping[str, Samples], layers: Sequence[Slice] = ()) -> dict[str, Any]:
    """A trace of inferences, and below them of the layers of one.

    Inferences are where they were in time, a process for each runtime. Of layers only mean times are known, so they
    stand one after another in a process of their own, from the beginning of the first inference.

    Args:
        samples: by name of the runtime, with the times at which they began.
        layers: in execution order.
    """
    start = min((each.begins[0] for each in samples.values() if each.begins), default=0.0)
    events: list[dict[str, Any]] = []
    for process, (name, found) in enumerate(samples.items(), 1):
        events.append(_named(process, name))
        for number, (begin, taken) in enumerate(zip(found.begins, found.seconds, strict=True)):
            events.append(_complete("inference", begin - start, taken, process, {"number": str(number)}))
    if layers:
        process, begin = len(samples) + 1, 0.0
        events.append(_named(process, _LAYERS))
        for each in layers:
            events.append(_complete(each.name, begin, each.seconds, process, each.facts))
            begin += each.seconds
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _named(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 1, "args": {"name": name}}


def _complete(name: str, begin: float, seconds: float, process: int, facts: Mapping[str, str]) -> dict[str, Any]:
    times = {"ts": begin * _MICRO, "dur": seconds * _MICRO}
    return {"ph": "X", "name": name, "cat": "inference", **times, "pid": process, "tid": 1, "args": dict(facts)}

"""The single dispatches of fresh processes, from the first inference on, as IREE's profiler tells them.

IREE's benchmark tool runs the module, as its library for Python offers no profiler. The tool reads the module into
memory before the first inference, so that no dispatch waits for a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import DeviceError
from sartor.first_inference.cold_bench import STOCK, ColdRuns, output_of, tool_arguments
from sartor.runtime.driver.iree_runtime import tool
from sartor.runtime.several.record import without_plan

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

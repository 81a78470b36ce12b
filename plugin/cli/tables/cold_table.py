"""First inferences of several runtimes, phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from sartor.cli.output.terminal import milliseconds, show_json, show_table
from sartor.first_inference.cold_bench import SELF
from sartor.first_inference.layer_phases import Phases
from sartor.first_inference.sample import FirstRun, typical
from sartor.runtime.benchmark import Samples, time_ratio

ColdTimes = Mapping[tuple[str, str], Sequence[FirstRun]]

_KIB = 1024.0
_Phase = Callable[[FirstRun], float | None]
_PHASES: dict[str, _Phase] = {
    "start": lambda run: run.start,
    "import": lambda run: run.imports,
    "load": lambda run: run.load,
    "first": lambda run: run.runs[0],
    "load + first": lambda run: run.first,
    "second": lambda run: run.runs[1] if len(run.runs) > 1 else None,
    "third": lambda run: run.runs[2] if len(run.runs) > 2 else None,
    "warm": lambda run: run.warm if len(run.runs) > 1 else None,
    "whole": lambda run: run.whole,
}


def show_cold(times: ColdTimes, phases: Phases | None = None) -> None:
    """Show medians of all phases, how much later other runtimes' first results come, and the phases of layers."""
    rounds = len(next(iter(times.values())))
    for state in dict.fromkeys(state for _, state in times):
        rows = [
            [name, *(_shown(_median(runs, phase)) for phase in _PHASES.values()), _share(times, name, state)]
            for (name, own), runs in times.items()
            if own == state
        ]
        columns = ("runtime", *_PHASES, "Sartor's whole is (95% interval)")
        title = f"first inference, files {state}: medians of {rounds} processes, ms"
        show_table(title, columns, rows, right=tuple(range(1, len(columns))))
    if phases is not None:
        _show_layers(phases)


def cold_json(times: ColdTimes, phases: Phases | None = None) -> None:
    """All samples, in seconds; ``sartor inspect --cold`` draws the typical ones."""
    records = [_record(name, state, runs) for (name, state), runs in times.items()]
    show_json({"cold": records, "phases": layers_json(phases)})


def _record(name: str, state: str, runs: Sequence[FirstRun]) -> dict[str, Any]:
    medians_by_phase = {phase: _median(runs, of) for phase, of in _PHASES.items()}
    medians = {
        f"{phase.replace(' + ', '_and_')}_ms": value and value * 1e3 for phase, value in medians_by_phase.items()
    }
    return {
        "runtime": name,
        "files": state,
        **medians,
        "typical": asdict(typical(runs)),
        "samples": [{**asdict(run), "steps": []} for run in runs],
    }


def _median(runs: Sequence[FirstRun], phase: _Phase) -> float | None:
    values = [value for run in runs if (value := phase(run)) is not None]
    return median(values) if values else None


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else milliseconds(seconds)


def _share(times: ColdTimes, name: str, state: str) -> str:
    """The time until Sartor's first result, from the start of the process, divided by that of another runtime."""
    if name == SELF:
        return ""
    own, other = (Samples(tuple(run.whole for run in times[name_of_runs, state])) for name_of_runs in (SELF, name))
    ratio = time_ratio(own, other)
    return f"{ratio.value:.2f} of its ({ratio.low:.2f} to {ratio.high:.2f})"


def _show_layers(phases: Phases) -> None:
    """Print the phases of each layer, their sums, and how long whole inferences took, which nearly are the sums."""
    layers = phases.layers
    states = [*layers[0].read]
    rows = [_row(layer.layer, layer.weight_bytes, [*layer.read.values(), layer.first, layer.later]) for layer in layers]
    sums = [sum(layer.read[state] for layer in layers) for state in states]
    sums += [sum(layer.first for layer in layers), sum(layer.later for layer in layers)]
    rows.append(_row("sum", sum(layer.weight_bytes for layer in layers), sums))
    whole = ["", *("" for _ in states), milliseconds(phases.first), milliseconds(phases.later)]
    rows.append(["whole inference", *whole])
    columns = ("layer", "weights, KiB", *(f"read, {state}" for state in states), "first execution", "later")
    show_table("phases by layer: medians, ms", columns, rows, right=tuple(range(1, len(columns))))


def _row(name: str, size: int, seconds: Sequence[float]) -> list[str]:
    return [name, f"{size / _KIB:.1f}", *map(milliseconds, seconds)]


def layers_json(phases: Phases | None) -> dict[str, Any] | None:
    """The phases as JSON data, in milliseconds."""
    if phases is None:
        return None
    layers = [
        {
            "layer": layer.layer,
            "weight_bytes": layer.weight_bytes,
            "read_ms": {state: seconds * 1e3 for state, seconds in layer.read.items()},
            "first_ms": layer.first * 1e3,
            "later_ms": layer.later * 1e3,
        }
        for layer in phases.layers
    ]
    return {"first_ms": phases.first * 1e3, "later_ms": phases.later * 1e3, "layers": layers}

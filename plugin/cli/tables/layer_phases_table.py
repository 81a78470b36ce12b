"""Prints the phases of a first inference by layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sartor.cli.output.terminal import milliseconds, show_table
from sartor.first_inference.layer_phases import Phases

_KIB = 1024.0


def show_layers(phases: Phases) -> None:
    """Print the phases of each layer, their sums, and how long whole inferences took, which nearly are the sums."""
    layers = phases.layers
    states = [*layers[0].read]
    rows = [_row(each.layer, each.weight_bytes, [*each.read.values(), each.first, each.later]) for each in layers]
    sums = [sum(each.read[state] for each in layers) for state in states]
    sums += [sum(each.first for each in layers), sum(each.later for each in layers)]
    rows.append(_row("sum", sum(each.weight_bytes for each in layers), sums))
    whole = ["", *("" for _ in states), milliseconds(phases.first), milliseconds(phases.later)]
    rows.append(["whole inference", *whole])
    columns = ("layer", "weights, KiB", *(f"read, {each}" for each in states), "first execution", "later")
    show_table("phases by layer: medians, ms", columns, rows, right=tuple(range(1, len(columns))))


def _row(name: str, size: int, seconds: Sequence[float]) -> list[str]:
    return [name, f"{size / _KIB:.1f}", *map(milliseconds, seconds)]


def layers_json(phases: Phases | None) -> dict[str, Any] | None:
    """The phases as JSON data, in milliseconds."""
    if phases is None:
        return None
    layers = [
        {
            "layer": each.layer,
            "weight_bytes": each.weight_bytes,
            "read_ms": {state: seconds * 1e3 for state, seconds in each.read.items()},
            "first_ms": each.first * 1e3,
            "later_ms": each.later * 1e3,
        }
        for each in phases.layers
    ]
    return {"first_ms": phases.first * 1e3, "later_ms": phases.later * 1e3, "layers": layers}

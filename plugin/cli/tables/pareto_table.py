"""Prints the Pareto front at the end of a compilation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sartor.artifact import ParetoFront, ParetoPoint
from sartor.cli.output.terminal import show_table
from sartor.cli.tables.routine_counts import routine_counts
from sartor.codegen.ir.variants.descriptor import without_parameters
from sartor.tuning.errors.error_sum import total
from sartor.tuning.selection.problem.limits import Quantity

_UNITS = {
    Quantity.LATENCY: ("latency ms", 1e3, "{:.3f}"),
    Quantity.COLD: ("first inference ms", 1e3, "{:.3f}"),
    Quantity.MEMORY: ("memory MiB", 1 / 2**20, "{:.3f}"),
    Quantity.ERROR: ("error", 1.0, "{:.3g}"),
}


def front_json(front: ParetoFront | None) -> dict[str, Any] | None:
    """The front as JSON data; times in milliseconds, memory in bytes."""
    if front is None:
        return None
    points = [
        {
            "latency_ms": point.needed[Quantity.LATENCY] * 1e3,
            "cold_ms": point.needed[Quantity.COLD] * 1e3,
            "memory_bytes": int(point.needed[Quantity.MEMORY]),
            "error": total(point.needed[Quantity.ERROR]),
            "simulated_error": point.error,
            "optimal": point.plan.optimal,
            "routines": routine_counts(point.plan),
            "adapts": len(point.plan.adapts),
        }
        for point in front.points
    ]
    return {"first": front.first, "second": front.second, "complete": front.complete, "points": points}


def show_front(front: ParetoFront) -> None:
    """Print a row per point, with the changes from one point to the next."""
    shown = [front.first, front.second]
    is_rounded = any(point.error is not None for point in front.points)
    simulated = ["simulated error"] if is_rounded else []
    columns = (*(_UNITS[quantity][0] for quantity in shown), *simulated, "layers that differ from the row above")
    rows = [
        [
            *(_value(point, quantity) for quantity in shown),
            *(_simulated(point) for _ in simulated),
            _changes(before, point),
        ]
        for before, point in zip((None, *front.points), front.points, strict=False)
    ]
    rest = "" if front.complete else ", there are more between them"
    right = range(len(columns) - 1)
    show_table(f"predicted, {front.first} against {front.second}{rest}", columns, rows, right=right)


def _simulated(point: ParetoPoint) -> str:
    return "" if point.error is None else f"{point.error:.3g}"


def _value(point: ParetoPoint, quantity: Quantity) -> str:
    _, factor, form = _UNITS[quantity]
    needed = point.needed[quantity]
    return form.format((total(needed) if quantity is Quantity.ERROR else needed) * factor)


def _changes(before: ParetoPoint | None, point: ParetoPoint) -> str:
    """Routines with more layers than in the plan before; all routines for the first plan."""
    if before is None:
        return "\n".join(f"{count} x {name}" for name, count in routine_counts(point.plan).items())
    old = {layer.layer: layer.variant for layer in before.plan.layers}
    changed = Counter(
        without_parameters(layer.variant) for layer in point.plan.layers if old.get(layer.layer) != layer.variant
    )
    return "\n".join(f"{count} now {name}" for name, count in changed.most_common())

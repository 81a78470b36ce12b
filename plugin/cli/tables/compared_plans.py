"""Prints the plans that ran as whole networks beside the shipped one."""

from __future__ import annotations

from typing import Any

from sartor.cli.output.terminal import milliseconds, show_table
from sartor.tuning.records.plan import ComparedPlan, Plan

_SHOWN = 3


def compared_json(plan: Plan) -> list[dict[str, Any]]:
    """The other plans as JSON data; times are in milliseconds, and null if they are not known."""
    return [
        {
            "predicted_ms": None if other.predicted is None else other.predicted * 1e3,
            "measured_ms": None if other.measured is None else other.measured * 1e3,
            "changes": other.changes,
        }
        for other in plan.compared
    ]


def show_compared(plan: Plan) -> None:
    """Print the other plans as a table, if there are any."""
    if plan.compared:
        rows = [
            [milliseconds(other.predicted), milliseconds(other.measured), _changes(other)] for other in plan.compared
        ]
        show_table("other plans that ran", ("predicted ms", "measured ms", "changes"), rows, right=(0, 1))


def _changes(compared: ComparedPlan) -> str:
    """The first changed layers, and the number of further ones."""
    shown = [f"{layer}: {variant}" for layer, variant in list(compared.changes.items())[:_SHOWN]]
    further = len(compared.changes) - len(shown)
    return "\n".join([*shown, *([f"and {further} further layers"] if further else [])])

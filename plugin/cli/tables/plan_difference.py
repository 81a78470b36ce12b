"""Prints the difference of two plans by ONNX node, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sartor.cli.output.terminal import milliseconds, optional, show_facts, show_table
from sartor.report.difference import Change, Side

_SHOWN_NODES = 6


def difference_json(changes: Sequence[Change]) -> dict[str, Any]:
    """The groups that differ as JSON data, and the sum of the costs; times in seconds."""
    differing = [change for change in changes if change.differs]
    return {
        "parts": len(changes),
        "differing": [
            {
                "nodes": list(difference.nodes),
                "first": {**asdict(difference.first), "total": difference.first.total},
                "second": {**asdict(difference.second), "total": difference.second.total},
                "cost": difference.cost,
            }
            for difference in differing
        ],
        "cost": _sum(differing),
        "cost_of_the_others": _sum([change for change in changes if not change.differs]),
    }


def show_difference(names: tuple[str, str], changes: Sequence[Change]) -> None:
    """Print what two plans do differently, the costliest first.

    Args:
        names: of the two plans.
        changes: as ``compare_plans`` finds them.
    """
    differing = [change for change in changes if change.differs]
    others = [change for change in changes if not change.differs]
    facts = [
        ("parts that differ", f"{len(differing)} of {len(changes)}"),
        ("they add to the second, ms", _signed(_sum(differing))),
        ("the others add, ms", _signed(_sum(others))),
    ]
    show_facts(" and ".join(names), facts)
    if differing:
        columns = ("ONNX nodes", "first", "second", "first ms", "second ms", "second takes longer, ms")
        ordered = sorted(differing, key=lambda difference: -abs(difference.cost or 0.0))
        show_table("what differs", columns, [_row(difference) for difference in ordered], right=(3, 4, 5))


def _row(change: Change) -> list[str]:
    further = len(change.nodes) - _SHOWN_NODES
    nodes = ", ".join(change.nodes[:_SHOWN_NODES]) + (f" and {further} more" if further > 0 else "")
    sides = (change.first, change.second)
    return [nodes, *map(_variants, sides), *(milliseconds(side.total) for side in sides), _signed(change.cost)]


def _variants(side: Side) -> str:
    return "\n".join(side.variants) or "-"


def _sum(changes: Sequence[Change]) -> float:
    return sum(change.cost or 0.0 for change in changes)


def _signed(seconds: float | None) -> str:
    return optional(seconds, lambda second: f"{second * 1e3:+.3f}")

"""The ledger of a layer's candidates, as ``sartor routines MODEL --layer NAME`` shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sartor.cli.output.terminal import show_json, show_table
from sartor.codegen.ir.variants.candidates import Rejection
from sartor.costing.ledger import LayerLedger


def show_ledgers(model: Path, ledgers: Sequence[LayerLedger], as_json: bool) -> None:
    """Print what is measured for each layer with predicted times, then who dropped which others, and why."""
    if as_json:
        show_json({"model": str(model), "layers": [_as_data(ledger) for ledger in ledgers]})
        return
    for ledger in ledgers:
        name, kind = ledger.layer.name, ledger.layer.task.kind.value
        costs = [[costed.variant.descriptor, f"{costed.seconds * 1e6:.1f}"] for costed in ledger.candidates]
        show_table(f"{name}, {kind}: candidates", ("variant", "predicted, µs"), costs, right=(1,))
        show_table(f"{name}: dropped", ("by", "why", "routines or variants"), _grouped(ledger.dropped))


def _grouped(dropped: Sequence[Rejection]) -> list[list[str]]:
    """A row for each reason of a filter: many routines share one."""
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in dropped:
        named[entry.by.value, entry.reason].append(entry.variant or entry.routine)
    return [[by, reason, ", ".join(names)] for (by, reason), names in named.items()]


def _as_data(ledger: LayerLedger) -> dict[str, Any]:
    return {
        "layer": ledger.layer.name,
        "nodes": list(ledger.layer.nodes),
        "kind": ledger.layer.task.kind.value,
        "candidates": [
            {"variant": costed.variant.descriptor, "predicted_seconds": costed.seconds} for costed in ledger.candidates
        ],
        "dropped": [
            {
                "by": entry.by.value,
                "routine": entry.routine,
                "variant": entry.variant or None,
                "reason": entry.reason,
            }
            for entry in ledger.dropped
        ],
    }

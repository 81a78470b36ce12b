"""Tables of ``sartor routines``: which algorithms exist in which formats, and the ledger of a layer's candidates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sartor.cli.output.terminal import show_json, show_table
from sartor.codegen.ir.variants.candidates import Rejection
from sartor.codegen.ir.variants.formats import Absence, Format, Layout, absences
from sartor.codegen.routines import PAIRS, ROUTINES
from sartor.costing.ledger import LayerLedger


def show_formats(*, as_json: bool) -> None:
    """Print the formats, the routine of each pair of an algorithm and a format, and why there are no others."""
    pairs = [
        (algorithm.name, form.name, routine.name) for (algorithm, form), routine in zip(PAIRS, ROUTINES, strict=True)
    ]
    formats = [_described(form) for form in dict.fromkeys(form for _, form in PAIRS)]
    absent = list(absences(PAIRS))
    if as_json:
        named = [dict(zip(("algorithm", "format", "routine"), pair, strict=True)) for pair in pairs]
        missing = [{"algorithm": one.algorithm, "format": one.form, "reason": one.reason} for one in absent]
        show_json({"formats": formats, "pairs": named, "absent": missing})
        return
    columns = ("format", "storage", "result", "layout", "weights", "multiplies")
    show_table("formats", columns, [[described[column] or "" for column in columns] for described in formats])
    show_table("algorithms by format", ("algorithm", "format", "routine"), pairs)
    show_table("what does not exist", ("algorithm", "why", "formats"), _columns_of(absent))


def _described(form: Format) -> dict[str, Any]:
    return {
        "format": form.name,
        "storage": form.storage or form.element,
        "result": form.result,
        "layout": None if form.layout is Layout.OWN else form.layout.value,
        "weights": form.weights if form.vectors is None else f"panels of {form.vectors}" if form.vectors else "rows",
        "multiplies": form.arithmetic if form.instruction is None else form.instruction.requirement or "pairs",
    }


def _columns_of(absent: list[Absence]) -> list[list[str]]:
    """A row for each reason of an algorithm: many formats share one."""
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in absent:
        named[one.algorithm, one.reason].append(one.form)
    return [[algorithm, reason, "; ".join(forms)] for (algorithm, reason), forms in named.items()]


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

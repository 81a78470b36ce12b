"""Which algorithms exist in which formats, and why not in others, as ``sartor routines --formats`` shows it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sartor.cli.output.terminal import show_json, show_table
from sartor.codegen.ir.variants.formats import Absence, Format, Layout, absences
from sartor.codegen.routines import PAIRS, ROUTINES


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
    show_table("what does not exist", ("algorithm", "why", "formats"), _grouped(absent))


def _described(form: Format) -> dict[str, Any]:
    return {
        "format": form.name,
        "storage": form.storage or form.element,
        "result": form.result,
        "layout": None if form.layout is Layout.OWN else form.layout.value,
        "weights": form.weights if form.vectors is None else f"panels of {form.vectors}" if form.vectors else "rows",
        "multiplies": form.arithmetic if form.instruction is None else form.instruction.requirement or "pairs",
    }


def _grouped(absent: list[Absence]) -> list[list[str]]:
    """A row for each reason of an algorithm: many formats share one."""
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in absent:
        named[one.algorithm, one.reason].append(one.form)
    return [[algorithm, reason, "; ".join(forms)] for (algorithm, reason), forms in named.items()]

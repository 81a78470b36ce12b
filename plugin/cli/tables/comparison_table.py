"""Prints how far a module's outputs are off, and what was asked about its layers and rewrites, as tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.cli.output.terminal import show_facts, show_json, show_table
from sartor.cli.tables.layer_error_table import first_json, layer_errors_json, show_first, show_layer_errors
from sartor.comparison.followed_rewrites import FollowedRewrite, first_beyond
from sartor.comparison.layer_errors import FirstBeyond, LayerError
from sartor.comparison.output_errors import OutputErrors
from sartor.profiling.layerwise.verdict import LayerVerdict

_SHOWN = 5


def show_rewrites(rewrites: Sequence[FollowedRewrite], allowed: float) -> None:
    """Print a row for each rewrite, then the first behind which the outputs are further off than is allowed."""
    rows = [[rewrite.change.rewrite, _names(rewrite.change.names, _SHOWN), _said(rewrite)] for rewrite in rewrites]
    show_table("rewrites", ("rewrite", "changes", "relative error behind it"), rows, right=(2,))
    first = first_beyond(rewrites, allowed)
    if first is None:
        show_facts(f"no rewrite behind which outputs are beyond {allowed:g}", [("run behind", _count(rewrites))])
    else:
        facts = [("rewrite", first.change.rewrite), ("changes", _names(first.change.names, len(first.change.names)))]
        show_facts(f"first rewrite behind which outputs are beyond {allowed:g}", [*facts, ("error", _said(first))])


def rewrites_json(rewrites: Sequence[FollowedRewrite], allowed: float) -> dict[str, Any]:
    """The rows as JSON data. An infinite or unknown error is null; ``reason`` says why it is unknown."""
    first = first_beyond(rewrites, allowed)
    return {"first": None if first is None else _json(first), "followed": [_json(rewrite) for rewrite in rewrites]}


def _json(followed: FollowedRewrite) -> dict[str, Any]:
    error = followed.error if followed.error is not None and math.isfinite(followed.error) else None
    change = followed.change
    return {"rewrite": change.rewrite, "names": [*change.names], "relative_error": error, "reason": followed.reason}


def _names(names: Sequence[str], shown: int) -> str:
    more = f", and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _said(followed: FollowedRewrite) -> str:
    return "does not run" if followed.error is None else f"{followed.error:.2g}"


def _count(rewrites: Sequence[FollowedRewrite]) -> str:
    return f"{sum(rewrite.error is not None for rewrite in rewrites)} of {len(rewrites)}"


@dataclass(frozen=True)
class Inside:
    """Results about what is inside a module; None for those that were not requested.

    Attributes:
        layers: errors of the layers.
        bound: the error that was looked for.
        first: the first layer beyond it.
        plan: which inferences the plan is for that has them, of a file with two.
        verdict: that of the layers, where the outputs are further off than is allowed.
        rewrites: those of the model before its import.
    """

    layers: list[LayerError] | None = None
    bound: float = 0.0
    first: FirstBeyond | None = None
    plan: str = ""
    verdict: LayerVerdict | None = None
    rewrites: Sequence[FollowedRewrite] | None = None


def comparison_json(errors: OutputErrors, inside: Inside) -> None:
    """Print the result as JSON, with null for infinite errors, and for the verdict on outputs without any number."""
    right = errors.right
    listed = [
        {
            "name": name,
            "relative_error": error if math.isfinite(error) else None,
            "within": None if name in errors.not_compared else error <= right.allowed,
        }
        for name, error in errors.largest.items()
    ]
    data: dict[str, Any] = {
        "max_error": right.allowed if math.isfinite(right.allowed) else None,
        "outputs": listed,
        "unchecked_outputs": list(right.unchecked),
        "reference": right.reference,
    }
    if inside.plan:
        data["plan_for"] = inside.plan
    if inside.verdict is not None:
        data["layers_compared"] = inside.verdict.sentence
        data["layers_right"] = inside.verdict.is_right
    if inside.layers is not None:
        data["layers"] = layer_errors_json(inside.layers)
    if inside.first is not None:
        data["bisection"] = first_json(inside.first, inside.bound)
    if inside.rewrites is not None:
        data["rewrites"] = rewrites_json(inside.rewrites, right.allowed)
    show_json(data)


def show_comparison(module: Path, errors: OutputErrors, inside: Inside) -> None:
    """Print the result as tables."""
    right = errors.right
    verdicts = {name: "yes" if error <= right.allowed else "NO" for name, error in errors.largest.items()}
    verdicts |= dict.fromkeys(errors.not_compared, "not checked")
    rows = [[name, f"{error:.2g}", verdicts[name]] for name, error in errors.largest.items()]
    columns = ("output", f"relative error to {right.reference}", f"within {right.allowed:g}")
    show_table(str(module), columns, rows, right=(1,))
    if inside.verdict is not None:
        show_facts("layers one by one", [("verdict", inside.verdict.sentence)])
    if inside.layers is not None:
        show_layer_errors(inside.layers, f"layers of the plan for {inside.plan}" if inside.plan else "layers")
    if inside.first is not None:
        show_first(inside.first, inside.bound)
    if inside.rewrites is not None:
        show_rewrites(inside.rewrites, right.allowed)

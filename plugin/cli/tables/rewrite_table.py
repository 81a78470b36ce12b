"""Prints what a model computes behind each of its rewrites, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sartor.cli.output.terminal import show_facts, show_table
from sartor.comparison.followed_rewrites import FollowedRewrite, first_beyond

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


def _json(each: FollowedRewrite) -> dict[str, Any]:
    error = each.error if each.error is not None and math.isfinite(each.error) else None
    change = each.change
    return {"rewrite": change.rewrite, "names": [*change.names], "relative_error": error, "reason": each.reason}


def _names(names: Sequence[str], shown: int) -> str:
    more = f", and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _said(each: FollowedRewrite) -> str:
    return "does not run" if each.error is None else f"{each.error:.2g}"


def _count(rewrites: Sequence[FollowedRewrite]) -> str:
    return f"{sum(each.error is not None for each in rewrites)} of {len(rewrites)}"

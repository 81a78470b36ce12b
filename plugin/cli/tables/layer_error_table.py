"""Prints the errors of layers against the reference, and the first layer beyond a bound, as tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sartor.cli.output.terminal import milliseconds, optional, show_facts, show_table
from sartor.comparison.layer_errors import FirstBeyond, LayerError

_NOT_COMPARED = "-"


@dataclass(frozen=True)
class _Column:
    """A column of the table: its title, and the text for a layer; numbers are aligned to the right."""

    title: str
    show: Callable[[LayerError], str]
    number: bool = False


_COLUMNS = (
    _Column("layer", lambda error: error.layer),
    _Column("ONNX nodes", lambda error: ", ".join(error.nodes)),
    _Column("routine", lambda error: error.variant),
    _Column("relative error", lambda error: _number(error.error), number=True),
    _Column("before it", lambda error: _number(error.before), number=True),
    _Column("growth", lambda error: _growth(error), number=True),
    _Column("alone", lambda error: _number(error.alone), number=True),
)
# Further columns for networks in which a layer computes in a narrower type.
_ROUNDED_COLUMNS = (
    _Column("contributes", lambda error: optional(error.sensitivity, "{:.2g}".format), number=True),
    _Column("saves ms", lambda error: milliseconds(error.saved), number=True),
)


def show_layer_errors(errors: Sequence[LayerError], title: str) -> None:
    """Print a row for each layer."""
    rounded = any(error.sensitivity is not None or error.saved is not None for error in errors)
    columns = (*_COLUMNS, *(_ROUNDED_COLUMNS if rounded else ()))
    rows = [[column.show(error) for column in columns] for error in errors]
    right = [index for index, column in enumerate(columns) if column.number]
    show_table(title, [column.title for column in columns], rows, right=right)


def layer_errors_json(errors: Sequence[LayerError]) -> list[dict[str, Any]]:
    """The rows as JSON data. Infinite and unknown errors are null; ``compared`` distinguishes them."""
    return [_json(error) for error in errors]


def _json(row: LayerError) -> dict[str, Any]:
    return {
        "layer": row.layer,
        "nodes": list(row.nodes),
        "routine": row.variant,
        "tensors": list(row.tensors),
        "compared": row.error is not None,
        "relative_error": _finite(row.error),
        "error_before": _finite(row.before),
        "growth": _finite(row.growth),
        "error_alone": _finite(row.alone),
        "contribution": _finite(row.sensitivity),
        "saved_ms": None if row.saved is None else row.saved * 1e3,
    }


def show_first(first: FirstBeyond, bound: float) -> None:
    """Print the first layer whose error exceeds the bound, or that there is none."""
    search = first.search
    looked = f"{len(search.errors)} layers in {search.rounds} rounds"
    if first.layer is None:
        worst = max(search.errors.values(), default=0.0)
        show_facts(f"no layer beyond {bound:g} was found", [("looked at", looked), ("worst of them", _number(worst))])
        return
    layer = first.layer
    facts = [
        ("layer", layer.layer),
        ("ONNX nodes", "\n".join(layer.nodes)),
        ("routine", layer.variant),
        ("relative error", _number(layer.error)),
        ("fed with what is right", _number(layer.alone)),
        ("reads", "\n".join(f"{name}: {_number(error)}" for name, error in search.inputs.items()) or "inputs only"),
        ("looked at", looked),
    ]
    show_facts(f"first layer beyond {bound:g}", facts)


def first_json(first: FirstBeyond, bound: float) -> dict[str, Any]:
    """The search as JSON data."""
    search = first.search
    return {
        "bound": bound,
        "first": None if first.layer is None else _json(first.layer),
        "reads": _listed(search.inputs.items()),
        "looked_at": _listed(search.errors.items()),
        "rounds": search.rounds,
    }


def _listed(errors: Any) -> list[dict[str, Any]]:
    return [{"layer": name, "relative_error": _finite(error)} for name, error in errors]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _number(value: float | None) -> str:
    return _NOT_COMPARED if value is None else f"{value:.2g}"


def _growth(row: LayerError) -> str:
    return "" if row.growth is None else f"{row.growth:.1f}x"

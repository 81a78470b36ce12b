"""Prints each layer's time in the network beside the time that the plan predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sartor.cli.output.terminal import milliseconds, optional, show_table
from sartor.runtime.dispatch_statistics import DispatchStatistics
from sartor.tuning.cost_tables.in_network import call_seconds
from sartor.tuning.records.plan import Plan


@dataclass(frozen=True)
class Row:
    """Layers, or conversions, that run the same code.

    Attributes:
        names: of the layers, or of a conversion's two ends.
        seconds: of one call in the network.
        predicted: seconds of one call by the plan, None if it was not measured.
    """

    names: tuple[str, ...]
    seconds: float
    predicted: float | None


def in_network_rows(statistics: DispatchStatistics, plan: Plan) -> list[Row]:
    """Rows in the order of execution; layers and conversions without a separate dispatch are left out."""
    taken = call_seconds(statistics.dispatches)
    names: defaultdict[str, list[str]] = defaultdict(list)
    predicted: dict[str, float | None] = {}
    for symbol, name, seconds in _pieces(plan):
        names[symbol].append(name)
        predicted[symbol] = seconds
    return [Row(tuple(names[name]), taken[name], predicted[name]) for name in names if name in taken]


def _pieces(plan: Plan) -> Iterator[tuple[str, str, float | None]]:
    for layer in plan.layers:
        yield layer.symbol, layer.layer, layer.seconds
    for adapt in plan.adapts:
        yield adapt.symbol, f"{adapt.producer} -> {adapt.consumer}", adapt.seconds


def in_network_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as JSON data; times in seconds."""
    return [asdict(row) for row in rows]


def show_in_network(rows: Sequence[Row]) -> None:
    """Print the rows."""
    columns = ("layers", "calls", "predicted ms", "in place ms", "in place / predicted")
    table = [
        [
            "\n".join(row.names),
            str(len(row.names)),
            milliseconds(row.predicted),
            milliseconds(row.seconds),
            optional(row.seconds / row.predicted if row.predicted else None, "{:.2f}".format),
        ]
        for row in rows
    ]
    show_table("layers in place", columns, table, right=(1, 2, 3, 4))

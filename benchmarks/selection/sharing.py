"""What it gains that a conversion is charged once for all readers of a value, and not on every edge.

Both ways of charging solve the same tables. The plan of the old way is then priced as it is built, with each conversion
made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.selection.network_tables import NetworkTables
from benchmarks.selection.results import Axes, plot_bars
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.problem import Edge, Problem
from sartor.tuning.selection.problem.selection import Assignment, evaluate


@dataclass(frozen=True)
class Shared:
    """A network charged in both ways.

    Attributes:
        network: name.
        layers: number of the problem's layers.
        shared: number of values with several readers that may need the same conversion.
        per_edge: milliseconds of the plan selected with every edge charged, as that way predicts.
        per_edge_built: milliseconds of the same plan as it is built.
        per_value: milliseconds of the plan selected with each conversion charged once.
        gain: by how much that plan is faster than the other as built, in percent.
        changed: number of layers with another choice.
        proven: whether the plan is proven optimal.
    """

    network: str
    layers: int
    shared: int
    per_edge: float
    per_edge_built: float
    per_value: float
    gain: float
    changed: int
    proven: bool


def run(tables: Sequence[NetworkTables]) -> list[Shared]:
    """Select for every network in both ways."""
    return [_compare(table) for table in tables]


def plot(rows: Sequence[Shared], path: Path) -> Path:
    """Plot the gain."""
    gains = {"charged once": [row.gain for row in rows]}
    return plot_bars(Axes("gain by sharing conversions", "", "% faster"), [row.network for row in rows], gains, path)


def per_edge(problem: Problem) -> Problem:
    """The same problem with conversions that no edges share."""
    alone = {edge: Edge(edge.producer, edge.consumer, edge.slot) for edge in problem.edges}
    adapts = {(alone[edge], produced, needed): cost for (edge, produced, needed), cost in problem.adapts.items()}
    return replace(problem, edges=tuple(alone.values()), adapts=adapts)


def _compare(tables: NetworkTables) -> Shared:
    problem = tables.problem
    old, new = auto.select(per_edge(problem)), auto.select(problem)
    built = evaluate(problem, Assignment(old.choices, old.childnets))
    if built is None:
        raise AssertionError("both problems have the same conversions")
    return Shared(
        tables.network,
        len(problem.nodes),
        _shareable(problem),
        old.cost * 1e3,
        built.latency * 1e3,
        new.cost * 1e3,
        100 * (built.latency / new.cost - 1),
        sum(new.choices[name] != choice for name, choice in old.choices.items()),
        new.optimal,
    )


def _shareable(problem: Problem) -> int:
    """The number of values of which several readers can pay for the same conversion."""
    paid: dict[tuple[object, object], set[Edge]] = {}
    for (edge, _, needed), cost in problem.adapts.items():
        if edge.value is not None and cost.latency > 0:
            paid.setdefault((edge.value, needed), set()).add(edge)
    return len({value for (value, _), edges in paid.items() if len(edges) > 1})

"""Finds the first layer whose result has too large an error, by measuring a few layers at a time.

If errors only grow along a network, all layers before a right one are right, and those between a right and a wrong one
are suspect. As in a bisection, each round divides the number of suspects by the number of measured layers. Errors may
also shrink. So at the end all layers that the found layer reads are measured, and the search continues unless they are
right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""Measures the relative errors of layers' results, by layer name."""

AT_ONCE = 8


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Attributes:
        first: a layer whose error exceeds the bound, while those of all its inputs do not; None if no measured layer's
            error exceeds it.
        inputs: errors of its inputs, by the layers that compute them.
        errors: of all measured layers, in topological order.
        rounds: number of measurements, of one or several layers each.
    """

    first: str | None
    inputs: Mapping[str, float]
    errors: Mapping[str, float]
    rounds: int


def bisect(graph: nx.DiGraph, measure: Measure, bound: float, at_once: int = AT_ONCE) -> Bisection:
    """Search a network for the first layer whose error exceeds a bound.

    Args:
        graph: layers that can be measured, in topological order, with an edge to each from those that it reads.
        measure: measures at most ``at_once`` layers at a time, and each at most once; its exceptions are not caught.
        bound: the largest allowed error.
        at_once: largest number of layers that are measured together.
    """
    errors: dict[str, float] = {}
    first: str | None = None
    rounds = 0
    while suspects := _suspects(graph, errors, first, bound):
        errors.update(measure(_spread(suspects, at_once)))
        first = next((name for name in graph if errors.get(name, 0.0) > bound), None)
        rounds += 1
    read = graph.predecessors(first) if first is not None else ()
    return Bisection(
        first, {name: errors[name] for name in read}, {name: errors[name] for name in graph if name in errors}, rounds
    )


def _suspects(graph: nx.DiGraph, errors: Mapping[str, float], first: str | None, bound: float) -> list[str]:
    """Layers, in topological order, that may be the first to exceed the bound."""
    within = {name for name, error in errors.items() if error <= bound}
    if first is None:
        before = set(graph)
    else:
        before = nx.ancestors(graph, first)
        # A right layer that depends on a wrong one does not show that the layers before it are right.
        within -= nx.descendants(graph, first)
    for name in within:
        before -= {name, *nx.ancestors(graph, name)}
    if not before and first is not None:
        before = set(graph.predecessors(first)) - set(errors)
    return [name for name in graph if name in before]


def _spread(names: Sequence[str], count: int) -> list[str]:
    """At most ``count`` names at equal distances, including the last."""
    taken = min(count, len(names))
    return [names[(index + 1) * len(names) // taken - 1] for index in range(taken)]

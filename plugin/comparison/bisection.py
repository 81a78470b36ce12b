"""Find the first layer whose result is too far off, looking at a few layers at a time.

Where errors only grow along a network, everything before a layer that is right is right, and everything between is
suspect. What is suspect shrinks by the number of layers that are looked at, as in a search by bisection. Errors may
shrink as well; so at the end all that the layer found reads is looked at, and only if that is right the search ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""Relative errors of the results of layers, by name."""

AT_ONCE = 8


@dataclass(frozen=True)
class Bisection:
    """What a search found.

    Attributes:
        first: a layer beyond the bound, all of whose inputs are within it; None if no layer looked at is beyond.
        inputs: errors of what it reads, by the layer that computes it.
        errors: of all layers that were looked at, in topological order.
        rounds: how often some were looked at.
    """

    first: str | None
    inputs: Mapping[str, float]
    errors: Mapping[str, float]
    rounds: int


def bisect(graph: nx.DiGraph, measure: Measure, bound: float, at_once: int = AT_ONCE) -> Bisection:
    """Search a network.

    Args:
        graph: layers that can be looked at, in topological order, with an edge to each from those it reads.
        measure: asked for the errors of at most ``at_once`` layers at a time, of each once; exceptions pass through.
        bound: the largest error that is right.
        at_once: how many layers are looked at together.
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
    """Layers that may be beyond the bound before all that are known to be, in topological order."""
    within = {name for name, error in errors.items() if error <= bound}
    if first is None:
        before = set(graph)
    else:
        before = nx.ancestors(graph, first)
        # What is right although it depends on what is wrong says nothing about what is before.
        within -= nx.descendants(graph, first)
    for name in within:
        before -= {name, *nx.ancestors(graph, name)}
    if not before and first is not None:
        before = set(graph.predecessors(first)) - set(errors)
    return [name for name in graph if name in before]


def _spread(names: Sequence[str], count: int) -> list[str]:
    """At most ``count`` names at equal distances, the last among them."""
    taken = min(count, len(names))
    return [names[(index + 1) * len(names) // taken - 1] for index in range(taken)]

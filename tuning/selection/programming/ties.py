"""Breaks ties between plans of equal cost in favour of earlier choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from sartor.tuning.selection.problem.problem import Choice, Edge
from sartor.tuning.selection.problem.selection import Assignment, evaluate
from sartor.tuning.selection.programming.formulation import Net

Allowed = Callable[[Assignment], bool]


def prefer_earlier(net: Net, plan: Assignment, allowed: Allowed) -> Assignment:
    """A plan that costs no more than ``plan``, in which no single layer could take an earlier choice at the same cost.

    Only layers of the net itself change, between choices of the program without childnets. Ties for which two layers
    would have to change at once remain.

    Args:
        net: the net, with its choices in the program.
        plan: a feasible plan.
        allowed: whether another plan may be returned.
    """
    touching: dict[str, list[Edge]] = {node.name: [] for node in net.problem.nodes}
    for edge in net.problem.edges:
        touching[edge.producer].append(edge)
        touching[edge.consumer].append(edge)
    moved = True
    while moved:
        moved = False
        for node, offered in zip(net.problem.nodes, net.choices, strict=True):
            for choice in _earlier(offered, plan.choices[node.name]):
                other = replace(plan, choices={**plan.choices, node.name: choice})
                if not _is_dearer(net, touching[node.name], node.name, plan, other) and allowed(other):
                    plan, moved = other, True
                    break
    return plan


def _earlier(offered: tuple[Choice, ...], taken: Choice) -> Iterator[Choice]:
    if taken.childnet is None:
        yield from (choice for choice in offered[: offered.index(taken)] if choice.childnet is None)


def _is_dearer(net: Net, edges: list[Edge], layer: str, plan: Assignment, other: Assignment) -> bool:
    """Whether ``other`` costs more. Costs around the layer are compared first, as they nearly always decide."""
    return _around(net, edges, layer, other) > _around(net, edges, layer, plan) or _value(net, other) > _value(
        net, plan
    )


def _around(net: Net, edges: list[Edge], layer: str, plan: Assignment) -> float:
    total = plan.choices[layer].cost.value(net.problem.objective)
    for edge in edges:
        produced, needed = plan.choices[edge.producer].output, plan.choices[edge.consumer].inputs[edge.slot]
        cost = net.problem.adapt(edge, produced, needed)
        total += math.inf if cost is None else cost.value(net.problem.objective)
    return total


def _value(net: Net, plan: Assignment) -> float:
    costs = evaluate(net.problem, plan)
    return math.inf if costs is None else costs.value(net.problem.objective)

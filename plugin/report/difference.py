"""The difference of two plans by ONNX node: which variants differ, and what that costs.

Two plans may divide the same network into other layers. So layers are compared in groups: the smallest sets of ONNX
nodes that both plans compute by whole layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from sartor.tuning.records.measurement import NO_TIME
from sartor.tuning.records.plan import AdaptChoice, LayerChoice, Plan

_OUTPUT = "output:"


@dataclass(frozen=True)
class Side:
    """What one of two plans does for a group of ONNX nodes.

    Attributes:
        layers: names, in execution order.
        variants: their descriptors.
        seconds: predicted, in the network if known; None if a layer was not measured.
        conversions: what the conversions before these layers, and after them to the network's outputs, add.
    """

    layers: tuple[str, ...]
    variants: tuple[str, ...]
    seconds: float | None
    conversions: float

    @property
    def total(self) -> float | None:
        """Seconds of layers and conversions; None if a layer was not measured."""
        return None if self.seconds is None else self.seconds + self.conversions


@dataclass(frozen=True)
class Change:
    """ONNX nodes that two plans compute.

    Attributes:
        nodes: their names, in the order of the first plan.
        first, second: what each plan does.
    """

    nodes: tuple[str, ...]
    first: Side
    second: Side

    @property
    def differs(self) -> bool:
        """Whether the variants differ."""
        return self.first.variants != self.second.variants

    @property
    def cost(self) -> float | None:
        """Seconds that the second plan takes longer; None if unknown."""
        if self.first.total is None or self.second.total is None:
            return None
        return self.second.total - self.first.total


def compare_plans(first: Plan, second: Plan) -> tuple[Change, ...]:
    """All groups of ONNX nodes in the order of the first plan, then what only the second one computes.

    Predicted times of both are compared if any layer of either has no time in the network.
    """
    sides = (first, second)
    in_place = all(_seconds_in_place(choice) is not None for plan in sides for choice in plan.layers)
    groups = nx.Graph()
    for plan in sides:
        for layer in plan.layers:
            nodes = _nodes(layer)
            groups.add_node(nodes[0])
            nx.add_path(groups, nodes)
    number = {node: index for index, component in enumerate(nx.connected_components(groups)) for node in component}
    layers, adapts = zip(*(_by_group(plan, number) for plan in sides), strict=True)
    order = dict.fromkeys(number[_nodes(layer)[0]] for plan in sides for layer in plan.layers)
    return tuple(
        Change(
            _together([*layers[0][group], *layers[1][group]]),
            *(_side(layers[index][group], adapts[index][group], in_place) for index in range(2)),
        )
        for group in order
    )


def _nodes(layer: LayerChoice) -> tuple[str, ...]:
    """The ONNX nodes of a layer; a layer of none stands for itself."""
    return layer.nodes or (layer.layer,)


def _together(layers: Iterable[LayerChoice]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for layer in layers for node in _nodes(layer)))


def _by_group(
    plan: Plan, number: dict[str, int]
) -> tuple[defaultdict[int, list[LayerChoice]], defaultdict[int, list[AdaptChoice]]]:
    layers: defaultdict[int, list[LayerChoice]] = defaultdict(list)
    adapts: defaultdict[int, list[AdaptChoice]] = defaultdict(list)
    group = {layer.layer: number[_nodes(layer)[0]] for layer in plan.layers}
    for layer in plan.layers:
        layers[group[layer.layer]].append(layer)
    for adapt in plan.adapts:
        end = adapt.producer if adapt.consumer.startswith(_OUTPUT) else adapt.consumer
        if end in group:
            adapts[group[end]].append(adapt)
    return layers, adapts


def _seconds_in_place(layer: LayerChoice) -> float | None:
    """Seconds in the network; None if unknown. A reshape takes none, and has no dispatch that could be timed."""
    if layer.in_place is None and layer.seconds is not None and layer.seconds <= NO_TIME:
        return 0.0
    return layer.in_place


def _side(layers: Sequence[LayerChoice], adapts: Sequence[AdaptChoice], in_place: bool) -> Side:
    taken = [_seconds_in_place(layer) if in_place else layer.seconds for layer in layers]
    known = [digest for digest in taken if digest is not None]
    conversions = sum((adapt.in_place if in_place else adapt.seconds) or adapt.seconds or 0.0 for adapt in adapts)
    seconds = sum(known) if len(known) == len(taken) and layers else None
    return Side(tuple(layer.layer for layer in layers), tuple(layer.variant for layer in layers), seconds, conversions)

"""Lets layers that read one weight read it in one form, so that the module stores it once.

A table of tokens is often the weight of the last product, too. Looking some rows up takes no time beside that product,
so the look-up follows the form that the product was selected with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.routine import Variant
from sartor.tuning.cost_tables.fused_choices import chosen_layers, member_choices
from sartor.tuning.cost_tables.problem_builder import choice_of, weight_uses
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.hardware import last_level_cache
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.limits import Limits, measures, within
from sartor.tuning.selection.problem.problem import Choice, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment

# How much longer a layer may take for it: times of short layers are known that well.
_RATIO, _SECONDS = 1.1, 5e-6
# The same where another plan of the file reads the weight, and no cache holds the network's weights: these come from
# memory as fast in panels of any width, while times of layers alone differ more.
_RATIO_FROM_MEMORY = 1.25
# Routines that look rows up as products read them. Not all are measured, and all read a few rows alone.
_LOOK_UPS = "columns_of_panels"


@dataclass(frozen=True)
class WeightSharing:
    """Replaces variants of a selected plan.

    Attributes:
        graph: the network.
        tables: costs.
        allows: whether a layer of that name may run a variant; the names of a fused layer's members count, too.
        limits: the user's, which a plan within them keeps.
        forms: in which another plan of the file reads weights, by their names.
    """

    graph: LayerGraph
    tables: Tables
    allows: Callable[[str, Layer, Variant], bool]
    limits: Limits
    forms: Mapping[str, Packing] = field(default_factory=dict)

    def shared(self, problem: Problem, plan: Assignment) -> tuple[Problem, Assignment]:
        """The plan in which layers read a weight as the slowest of its readers does, or another plan, if that is hardly
        slower, and the problem with what it chooses."""
        graph, before = chosen_layers(self.graph, self.tables.variants, plan)
        after = self._variants(graph, self._in_forms(graph, before))
        new = dict[str, Choice]()
        for layer in graph.layers:
            if after[layer.name] != before[layer.name]:
                new |= self._choices(layer, before[layer.name], after[layer.name])
        if not new:
            return problem, plan
        nodes = tuple(_with_choice(node, new.get(node.name)) for node in problem.nodes)
        chosen = {node.name: _named(node, new[node.name]) for node in nodes if node.name in new}
        wider, other = replace(problem, nodes=nodes), replace(plan, choices={**plan.choices, **chosen})
        bounds = self.limits.bounds
        if within(measures(problem, plan), bounds) and not within(measures(wider, other), bounds):
            return problem, plan
        return wider, other

    def _in_forms(self, graph: LayerGraph, chosen: Mapping[str, Variant]) -> dict[str, Variant]:
        """What layers run if they read weights as another plan does."""
        variants = dict(chosen)
        is_far = 0 < last_level_cache() < _weight_bytes(graph)
        ratio = _RATIO_FROM_MEMORY if is_far else _RATIO
        for layer in graph.layers:
            for position, name in enumerate(layer.weights):
                if name in self.forms:
                    form = self.forms[name]
                    variants[layer.name] = self._reading(layer, position, form, variants[layer.name], ratio)
        return variants

    def _variants(self, graph: LayerGraph, chosen: Mapping[str, Variant]) -> dict[str, Variant]:
        variants, readers = dict(chosen), defaultdict[str, list[tuple[Layer, int]]](list)
        for layer in graph.layers:
            for position, name in enumerate(layer.weights):
                readers[name].append((layer, position))
        for shared in readers.values():
            for leader in self._leaders(shared, variants):
                changed = self._following(leader, shared, variants)
                variants |= changed
                if changed:
                    break
        return variants

    def _leaders(self, shared: list[tuple[Layer, int]], variants: Mapping[str, Variant]) -> list[tuple[Layer, int]]:
        """The readers whose forms are tried: the slowest that is no look-up, which moves more than what it reads of a
        table; then the slowest of all."""

        def seconds(reader: tuple[Layer, int]) -> float:
            return self._seconds(reader[0], variants[reader[0].name])

        products = [reader for reader in shared if not self._looks_up(reader[0])]
        return [max(readers, key=seconds) for readers in (products, shared) if readers]

    def _following(
        self, leader: tuple[Layer, int], shared: list[tuple[Layer, int]], variants: Mapping[str, Variant]
    ) -> dict[str, Variant]:
        """What readers run that change to the form in which one of them reads their weight."""
        layer, position = leader
        packing = variants[layer.name].implementation.packings[position]
        following = {
            other.name: self._reading(other, place, packing, variants[other.name])
            for other, place in shared
            if other.name != layer.name
        }
        return {name: variant for name, variant in following.items() if variant != variants[name]}

    def _looks_up(self, layer: Layer) -> bool:
        return any(variant.traits.family == _LOOK_UPS for variant in self.tables.variants[layer.task.key])

    def _reading(
        self, layer: Layer, position: int, packing: Packing, chosen: Variant, ratio: float = _RATIO
    ) -> Variant:
        """The fastest variant that reads a weight in a form and differs in nothing else that others see, or ``chosen``.

        A look-up that was not measured counts as if it were as fast, and so does, where none with the form was, what
        reads the form of another plan: the time may end before that is measured.
        """
        names = self._names(layer)
        if chosen.implementation.packings[position] == packing or not names:
            return chosen
        taken = self._seconds(layer, chosen)
        readings = [
            (seconds, variant.descriptor, variant)
            for variant, seconds in self._timed(layer, taken, packing)
            if _looks_alike(variant, chosen)
            and variant.implementation.packings[position] == packing
            and all(self.allows(name, layer, variant) for name in names)
        ]
        fitting = [reading for reading in readings if reading[0] <= ratio * taken + _SECONDS]
        return min(fitting)[-1] if fitting else chosen

    def _timed(self, layer: Layer, taken: float, form: Packing) -> Iterator[tuple[Variant, float]]:
        """Variants with their seconds, which are ``taken`` where only that can be said."""
        key = layer.task.key
        known = self.tables.measured.get(key, {})
        reads_form = {
            variant.descriptor for variant in self.tables.variants[key] if form in variant.implementation.packings
        }
        is_followed = form in self.forms.values() and not reads_form & {*known}
        for variant in self.tables.variants[key]:
            seconds = self.tables.seconds(key, variant.descriptor)
            if seconds is not None:
                yield variant, seconds
            elif variant.descriptor not in known and (
                variant.traits.family == _LOOK_UPS or (is_followed and variant.descriptor in reads_form)
            ):
                yield variant, taken

    def _names(self, layer: Layer) -> tuple[str, ...]:
        """The names under which pins restrict a layer; none of a layer inside another, which stays as it is."""
        members = next((fusion.members for fusion in self.graph.fusions if fusion.layer.name == layer.name), ())
        is_own = bool(members) or any(inner.name == layer.name for inner in self.graph.layers)
        return (layer.name, *members) if is_own else ()

    def _choices(self, layer: Layer, before: Variant, variant: Variant) -> dict[str, Choice]:
        """What stands for a variant in the problem, by the node's name."""
        known = self.tables.measured[layer.task.key]
        measurement = known.get(variant.descriptor) or _as_fast(known[before.descriptor], layer, variant)
        choice = choice_of(layer, variant, measurement, self.tables, weight_uses(self.graph))
        if variant.descriptor not in known:
            choice = replace(choice, cost=replace(choice.cost, latency=self._seconds(layer, before)))
        fusion = next((candidate for candidate in self.graph.fusions if candidate.layer.name == layer.name), None)
        return {layer.name: choice} if fusion is None else member_choices(fusion, choice)

    def _seconds(self, layer: Layer, variant: Variant) -> float:
        return self.tables.seconds(layer.task.key, variant.descriptor) or 0.0


def _weight_bytes(graph: LayerGraph) -> int:
    """Bytes of all weights, each counted once."""
    sizes = {
        name: tensor.bytes
        for layer in graph.layers
        for name, tensor in zip(layer.weights, layer.task.weights, strict=True)
    }
    return sum(sizes.values())


def _as_fast(measurement: Measurement, layer: Layer, variant: Variant) -> Measurement:
    """The measurement of another variant, with the weights of this one."""
    pairs = zip(variant.implementation.packings, layer.task.weights, strict=True)
    return replace(measurement, packed_bytes=sum(packing.type_of(logical).bytes for packing, logical in pairs))


def _with_choice(node: Node, new: Choice | None) -> Node:
    is_known = new is None or any(choice.name == new.name for choice in node.choices)
    return node if new is None or is_known else replace(node, choices=(*node.choices, new))


def _named(node: Node, choice: Choice) -> Choice:
    return next(option for option in node.choices if option.name == choice.name)


def _looks_alike(variant: Variant, other: Variant) -> bool:
    own, given = variant.implementation, other.implementation
    is_of_type = (variant.device, variant.dtype) == (other.device, other.dtype)
    return is_of_type and (own.inputs, own.outputs, own.ranges) == (given.inputs, given.outputs, given.ranges)

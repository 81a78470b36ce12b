"""Ranges of the values between layers: as plans keep them, and inside childnets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, ValueRef
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.calibration.quantised_range import QuantisedRange


def named_ranges(ranges: Mapping[ValueRef, QuantisedRange]) -> dict[str, tuple[float, int]]:
    """Scale and zero point by ``layer:result``; a network input has no layer."""
    return {
        f"{ref.source or ''}:{ref.index}": (value_range.scale, value_range.zero_point)
        for ref, value_range in ranges.items()
    }


def ranges_of(named: Mapping[str, tuple[float, int]]) -> dict[ValueRef, QuantisedRange]:
    """The inverse of ``named_ranges``: ranges by value."""
    ranges = {}
    for name, (scale, zero) in named.items():
        layer, _, index = name.rpartition(":")
        ranges[ValueRef(layer or None, int(index))] = QuantisedRange(scale, zero, "int8")
    return ranges


def with_children(graph: LayerGraph, ranges: Mapping[ValueRef, QuantisedRange]) -> dict[ValueRef, QuantisedRange]:
    """The ranges, extended to values inside childnets that are parts of values with ranges.

    A part has the range of the whole, so that slicing and concatenation only move bytes.
    """
    with_ranges = dict(ranges)
    layers = {layer.name: layer for layer in graph.layers}
    for net in graph.childnets:
        own = layers[net.layer].inputs
        whole = {part: own[of.index] if of.source is None else of for part, of in net.parts_of}
        whole |= {ValueRef(None, index): ref for index, ref in enumerate(own)}
        inside = {part: ranges[ref] for part, ref in whole.items() if ref in ranges}
        for fusion in net.graph.fusions:
            last = ValueRef(fusion.members[-1], 0)
            inside |= {ValueRef(fusion.layer.name, 0): inside[last]} if last in inside else {}
        with_ranges |= {ref: child for ref, child in with_children(net.graph, inside).items() if ref.source is not None}
    return with_ranges


def quantised_by(named: Mapping[str, tuple[float, int]], imported: ImportedModel) -> ImportedModel:
    """The model with a plan's ranges, in the format of ``named_ranges``, beside its own."""
    return replace(imported, ranges=with_children(imported.graph, {**ranges_of(named), **imported.ranges}))


class Values:
    """References of the values that layers, and children of layers, read and write.

    Args:
        graph: the network.
    """

    def __init__(self, graph: LayerGraph) -> None:
        layers = {layer.name: layer for layer in graph.all_layers()}
        self._parents = {
            child.name: layers[net.layer]
            for net in graph.all_childnets()
            for child in (*net.graph.layers, *(fusion.layer for fusion in net.graph.fusions))
        }

    def read(self, layer: Layer, slot: int) -> ValueRef:
        """The value of an activation; an input of a childnet is an activation of its layer."""
        ref = layer.inputs[slot]
        while ref.source is None and layer.name in self._parents:
            layer = self._parents[layer.name]
            ref = layer.inputs[ref.index]
        return ref

    @staticmethod
    def written(layer: Layer) -> tuple[ValueRef, ...]:
        """The values of all results of a layer."""
        return tuple(ValueRef(layer.name, index) for index in range(len(layer.task.results)))

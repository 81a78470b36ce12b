"""Which reshapes may stand for a transposition: those beside a layer that has the image with its channels last.

Elsewhere a conversion would have to move the channels, as the transposition does, and all of this would be measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.ir.variants.routine import Rejected, Variant

_USELESS = Rejected("no layer beside it has the image with its channels last")


def with_useful_views(candidates: Candidates, graph: LayerGraph) -> Candidates:
    """The candidates of a network without reshapes of images that no neighbour could have with channels last."""
    useful: defaultdict[str, set[str]] = defaultdict(set)
    for network in (graph, *(childnet.graph for childnet in graph.all_childnets())):
        neighbours = _Neighbours.of(network, candidates)
        for layer in network.layers:
            listed = candidates.variants[layer.task.key]
            useful[layer.task.key] |= {one.descriptor for one in listed if neighbours.suit(layer, one)}

    def judge(key: str, variant: Variant) -> Rejected | None:
        return None if not variant.traits.is_free or variant.descriptor in useful[key] else _USELESS

    return candidates.judged(Filter.NEIGHBOURS, judge)


@dataclass(frozen=True)
class _Neighbours:
    """The layers around each layer.

    Attributes:
        candidates: variants of all.
        layers: by name.
        readers: of each layer's results, with the slot that they read them in.
    """

    candidates: Candidates
    layers: Mapping[str, Layer]
    readers: Mapping[str, Sequence[tuple[Layer, int]]]

    @staticmethod
    def of(graph: LayerGraph, candidates: Candidates) -> _Neighbours:
        """Those of a graph."""
        readers: defaultdict[str, list[tuple[Layer, int]]] = defaultdict(list)
        for layer in graph.layers:
            for slot, given in enumerate(layer.inputs):
                readers[given.source or ""].append((layer, slot))
        return _Neighbours(candidates, {layer.name: layer for layer in graph.layers}, readers)

    def suit(self, layer: Layer, view: Variant) -> bool:
        """Whether a reshape fits a variant of the layer in front and of one behind."""
        return view.traits.is_free and self._suit_front(layer, view) and self._suit_behind(layer, view)

    def _suit_front(self, layer: Layer, view: Variant) -> bool:
        if view.implementation.inputs[0].layout != CHANNELS_LAST:
            return True
        given = layer.inputs[0]
        producer = self.layers.get(given.source or "")
        listed = () if producer is None else self.candidates.variants[producer.task.key]
        return any(variant.implementation.outputs[given.index].layout == CHANNELS_LAST for variant in listed)

    def _suit_behind(self, layer: Layer, view: Variant) -> bool:
        if view.implementation.output.layout != CHANNELS_LAST:
            return True
        return any(
            variant.implementation.inputs[slot].layout == CHANNELS_LAST
            for reader, slot in self.readers.get(layer.name, ())
            for variant in self.candidates.variants[reader.task.key]
        )

"""The network as a graph of layers, and the graphs that may replace single layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sartor.codegen.ir.layer import Fusion, Layer, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.sizes.calls import SizedCall

INPUT_PREFIX, OUTPUT_PREFIX = "input:", "output:"
"""Before the names of network inputs and outputs where these stand beside layers; no layer has such a name."""


@dataclass(frozen=True)
class LayerGraph:
    """The network as layers, in an order that respects their dependencies.

    Attributes:
        layers: in execution order; names are unique.
        inputs: network inputs, in ONNX order.
        outputs: network outputs, each with the value it is.
        fusions: layers that may be computed together, in the order of their last members.
        childnets: graphs that may replace single layers, in the order of these layers.
        calls: for which sizes plans are selected, the largest first; empty if all sizes are known.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[NetworkValue, ...]
    outputs: tuple[NetworkValue, ...]
    fusions: tuple[Fusion, ...] = ()
    childnets: tuple[Childnet, ...] = ()
    calls: tuple[SizedCall, ...] = ()

    def all_layers(self) -> Iterator[Layer]:
        """Every layer that a plan may have: those of the graph, then fused ones, then those of childnets."""
        yield from self.layers
        yield from (fusion.layer for fusion in self.fusions)
        for childnet in self.childnets:
            yield from childnet.graph.all_layers()

    def all_childnets(self) -> Iterator[Childnet]:
        """Every childnet, including those of layers inside childnets."""
        for childnet in self.childnets:
            yield childnet
            yield from childnet.graph.all_childnets()

    def childnets_of(self, layer: str) -> tuple[Childnet, ...]:
        """The childnets that may replace a layer of this graph."""
        return tuple(childnet for childnet in self.childnets if childnet.layer == layer)

    def tasks(self) -> dict[str, Task]:
        """Every distinct task, by key, in the order of first use, those of fusions and childnets last."""
        return {layer.task.key: layer.task for layer in self.all_layers()}

    def type_of(self, ref: ValueRef) -> TensorType:
        """Type, in ONNX layout, of a value of the graph."""
        if ref.source is None:
            return self.inputs[ref.index].type
        return next(layer for layer in self.layers if layer.name == ref.source).task.results[ref.index]


@dataclass(frozen=True)
class Childnet:
    """Layers that compute what one layer does, each tuned like any other (SoftNeuro, section III-D).

    Attributes:
        layer: name of the layer.
        descriptor: names the childnet as if it were a variant of the layer.
        graph: the layers. Its inputs are the layer's activations, its one output is the layer's result.
        parts_of: pairs of a value in ``graph`` and the value outside that contains all its elements: an activation of
            the layer, as ``ValueRef(None, position)``, or the layer's result.
        error: relative error of the method in the layer's own type, beyond that of its layers.
        may_round: whether its layers may compute in narrower types than their own. If not, the method would multiply
            the error.
    """

    layer: str
    descriptor: str
    graph: LayerGraph
    parts_of: tuple[tuple[ValueRef, ValueRef], ...] = ()
    error: float = 0.0
    may_round: bool = True

"""Probes: networks whose outputs are results of single layers of another network.

A module returns only its outputs. A probe is stitched from the same variants in the same order, with other outputs: a
module with the same dispatches that returns values inside the network. A layer may also read reference values in place
of other layers' results; its error is then its own, without that of the layers before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, NetworkValue, ValueRef
from sartor.codegen.ir.variants.routine import Variant
from sartor.frontend.layer_tensors import LayerTensors
from sartor.onnx_model.graphs.names import TakenNames


@dataclass(frozen=True)
class Probe:
    """A network whose outputs are results of layers of another network.

    Attributes:
        graph: only the layers that the outputs need.
        variants: of the layers, by layer name.
        fed: name of an input to the ONNX tensor that it takes; without the network's own inputs.
        expected: name of an output to the ONNX tensor that it should equal.
        in_network: layer name to its outputs computed in the network.
        alone: layer name to its outputs computed from reference values.
        stands_for: values of the probe to the values of the network in whose place they are read or written.
    """

    graph: LayerGraph
    variants: Mapping[str, Variant]
    fed: Mapping[str, str]
    expected: Mapping[str, str]
    in_network: Mapping[str, tuple[str, ...]]
    alone: Mapping[str, tuple[str, ...]]
    stands_for: Mapping[ValueRef, ValueRef]


def make_probe(
    graph: LayerGraph,
    variants: Mapping[str, Variant],
    tensors: Mapping[str, LayerTensors],
    in_network: Sequence[str],
    alone: Sequence[str],
) -> Probe:
    """Make a probe of some layers.

    Args:
        graph: the network's layers.
        variants: by layer name.
        tensors: ONNX names of the values of each layer.
        in_network: layers whose results in the network are outputs.
        alone: layers whose results from reference values are outputs; ONNX must have tensors for all their inputs.
    """
    writer = _Writer(graph, tensors)
    layers = {layer.name: layer for layer in graph.layers}
    needed = needed_layers(graph, in_network)
    kept = [layer for layer in graph.layers if layer.name in needed]
    copies = {name: writer.detached(layers[name]) for name in alone}
    watched = {name: writer.watch(layers[name], tensors[name]) for name in in_network}
    fed = {name: writer.watch(copy, tensors[name]) for name, copy in copies.items()}
    chosen = {layer.name: variants[layer.name] for layer in kept}
    chosen |= {copy.name: variants[name] for name, copy in copies.items()}
    probe = LayerGraph((*kept, *copies.values()), tuple(writer.inputs), tuple(writer.outputs))
    return Probe(probe, chosen, writer.fed, writer.expected, watched, fed, writer.stands_for)


def needed_layers(graph: LayerGraph, names: Sequence[str]) -> frozenset[str]:
    """The layers ``names`` and all that they depend on."""
    needed = set(names)
    for layer in reversed(graph.layers):
        if layer.name in needed:
            needed.update(ref.source for ref in layer.inputs if ref.source is not None)
    return frozenset(needed)


@dataclass
class _Writer:
    """Collects the inputs and outputs of a probe."""

    graph: LayerGraph
    tensors: Mapping[str, LayerTensors]
    outputs: list[NetworkValue] = field(default_factory=list)
    fed: dict[str, str] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)
    stands_for: dict[ValueRef, ValueRef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = list(self.graph.inputs)
        self._names = TakenNames([*(layer.name for layer in self.graph.layers), *(value.name for value in self.inputs)])
        self._known: dict[ValueRef, ValueRef] = {}

    def watch(self, layer: Layer, tensors: LayerTensors) -> tuple[str, ...]:
        """Make results of a layer outputs, if ONNX has tensors for them; returns the outputs' names."""
        watched: list[str] = []
        for index, (kind, tensor) in enumerate(zip(layer.task.results, tensors.results, strict=True)):
            if tensor is not None:
                watched.append(self._names.fresh(f"result {index} of {layer.name}"))
                self.expected[watched[-1]] = tensor
                value = NetworkValue(watched[-1], kind, kind.numpy_dtype.name, ValueRef(layer.name, index))
                self.outputs.append(value)
        return tuple(watched)

    def detached(self, layer: Layer) -> Layer:
        """A copy of the layer that reads inputs of the probe instead of other layers' results."""
        tensors = self.tensors[layer.name].inputs
        refs = [self._right(ref, tensor) for ref, tensor in zip(layer.inputs, tensors, strict=True)]
        copy = replace(layer, name=self._names.fresh(f"{layer.name} alone"), inputs=tuple(refs))
        for index in range(len(layer.task.results)):
            self.stands_for[ValueRef(copy.name, index)] = ValueRef(layer.name, index)
        return copy

    def _right(self, ref: ValueRef, tensor: str | None) -> ValueRef:
        """A new input that takes the reference value of a layer's result."""
        if ref.source is None:
            return ref
        if tensor is None:
            raise ValueError(f"ONNX has no value for result {ref.index} of '{ref.source}' that could be fed")
        if ref not in self._known:
            kind, name = self.graph.type_of(ref), self._names.fresh(f"right {ref.index} of {ref.source}")
            self._known[ref] = ValueRef(None, len(self.inputs))
            self.inputs.append(NetworkValue(name, kind, kind.numpy_dtype.name))
            self.fed[name] = tensor
            self.stands_for[self._known[ref]] = ref
        return self._known[ref]

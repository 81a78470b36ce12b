"""Finds the tensors of the prepared ONNX model that a layer reads and computes.

Layers are formed of linalg ops, each of which has the name of its ONNX node. Only one op's results leave a layer, and
all its other ops are ancestors of that op. So a layer's result is an output of the last of its nodes, unless a later
layer computes another part of that node: Softmax's row maxima are a layer's result, but not a tensor of ONNX.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from sartor.codegen.ir.encoding import ATTRIBUTE
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import names_read
from sartor.onnx_model.operator_types.moving import RESHAPING

_FLOATS: Mapping[int, str] = {
    TensorProto.FLOAT: "f32",
    TensorProto.DOUBLE: "f64",
    TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16",
}
ENCODED = "MatMulNBits"
"""The operator of products by weights in blocks of integers, as prepared models have it."""
_MOVING = RESHAPING - {"Identity"} | {"Gather", "Slice", "Split"}


@dataclass(frozen=True)
class LayerTensors:
    """Names of a layer's values in the prepared model.

    Attributes:
        layer: the layer's name.
        inputs: name of each activation; None for a value that exists only within an ONNX node.
        results: name of each result, or None. Elements lie in the same order; the shape may differ.
        nodes: the ONNX nodes between both, in the model's order; empty if a result is None, or depends on more
            tensors than the inputs.
        encoded: name, input and output of the only node that multiplies by a weight in blocks of integers; None if
            there is none.
    """

    layer: str
    inputs: tuple[str | None, ...]
    results: tuple[str | None, ...]
    nodes: tuple[str, ...]
    encoded: tuple[str, str, str] | None = None

    @property
    def result(self) -> str | None:
        """The only result; None if it has no name, or there are several."""
        return self.results[0] if len(self.results) == 1 else None


def layer_tensors(model: ModelProto, graph: LayerGraph) -> dict[str, LayerTensors]:
    """The tensors of every layer, by its name.

    Args:
        model: as prepared for import.
        graph: the layers formed from the model, before fusion.
    """
    finder = _Finder(model, graph)
    names: dict[ValueRef, str | None] = {ValueRef(None, index): value.name for index, value in enumerate(graph.inputs)}
    for layer in graph.layers:
        for index, type_ in enumerate(layer.task.results):
            names[ValueRef(layer.name, index)] = finder.result(layer, index, type_)
    return {layer.name: finder.describe(layer, names) for layer in graph.layers}


def value_names(model: ModelProto, graph: LayerGraph) -> Iterator[tuple[ValueRef, str]]:
    """Every value of the graph that has a name in the model, and the name; results of fusions have their last member's.

    Args:
        model: as prepared for import.
        graph: the layers that were formed of it.
    """
    for index, value in enumerate(graph.inputs):
        yield ValueRef(None, index), value.name
    tensors = layer_tensors(model, graph)
    for layer, named in tensors.items():
        for index, name in enumerate(named.results):
            if name is not None:
                yield ValueRef(layer, index), name
    for fusion in graph.fusions:
        last = tensors[fusion.members[-1]].results[0]
        if last is not None:
            yield ValueRef(fusion.layer.name, 0), last


class _Finder:
    def __init__(self, model: ModelProto, graph: LayerGraph) -> None:
        self._editor = GraphEditor(model.graph)
        self._order = {node.name: index for index, node in enumerate(model.graph.node)}
        self._nodes = list(model.graph.node)
        self._places = {layer.name: place for place, layer in enumerate(graph.layers)}
        self._successors: dict[str, set[str]] = defaultdict(set)
        self._holders: dict[str, set[str]] = defaultdict(set)
        self._readers: dict[ValueRef, set[str]] = defaultdict(set)
        for layer in graph.layers:
            for node in layer.nodes:
                self._holders[node].add(layer.name)
            for ref in layer.inputs:
                self._readers[ref].add(layer.name)
                if ref.source is not None:
                    self._successors[ref.source].add(layer.name)
        self._outputs = {(output.source, output.name) for output in graph.outputs}

    def result(self, layer: Layer, index: int, type_: TensorType) -> str | None:
        """Name of the tensor that holds a layer's result; None if there is none."""
        last = max((self._order[name] for name in layer.nodes if name in self._order), default=None)
        if last is None or (self._continues(layer, self._nodes[last]) and not self._moves(self._nodes[last])):
            return None
        ref = ValueRef(layer.name, index)
        fitting = [name for name in self._nodes[last].output if name and self._fits(name, type_)]
        if len(self._nodes[last].output) > 1:
            fitting.sort(key=lambda name: -self._agreement(ref, name))
            fitting = [name for name in fitting if self._agreement(ref, name) > 0]
        return fitting[0] if fitting else None

    def _continues(self, layer: Layer, node: NodeProto) -> bool:
        """Whether a later layer that depends on this one computes another part of the same node."""
        others = self._holders[node.name] - {layer.name}
        last = max(map(self._places.__getitem__, others), default=-1)
        pending, seen = [layer.name], {layer.name}
        while pending:
            # Layers are in an order that respects dependencies, so that what comes after the last leads nowhere.
            after = {successor for successor in self._successors[pending.pop()] if self._places[successor] <= last}
            if not others.isdisjoint(after):
                return True
            pending.extend(after - seen)
            seen |= after
        return False

    def _moves(self, node: NodeProto) -> bool:
        """Whether a node only selects or regroups elements; given as many as it selects, it changes no values."""
        return node.op_type in _MOVING and self._editor.element_type(node.output[0]) in _FLOATS

    def _fits(self, name: str, type_: TensorType) -> bool:
        """Whether a tensor has the elements of a layer's result, in its type if they are floats."""
        shape = self._editor.shape(name)
        dtype = _FLOATS.get(self._editor.element_type(name), type_.dtype)
        return shape is not None and _is_regrouped(shape, type_.shape) and dtype == type_.dtype

    def _agreement(self, ref: ValueRef, name: str) -> int:
        """How many of the readers of a layer's result read this tensor."""
        reached = self._reached(name)
        return len(self._readers[ref] & reached) + ((ref, name) in self._outputs)

    def _reached(self, name: str) -> set[str]:
        """Layers that read a tensor, directly or through nodes that no layer contains."""
        reached: set[str] = set()
        pending = [name]
        while pending:
            for node in self._editor.consumers(pending.pop()):
                reached |= self._holders[node.name]
                if not self._holders[node.name]:
                    pending.extend(node.output)
        return reached

    def describe(self, layer: Layer, names: Mapping[ValueRef, str | None]) -> LayerTensors:
        """A layer's tensors, given the names of all layers' results."""
        inputs = tuple(names[ref] for ref in layer.inputs)
        results = tuple(names[ValueRef(layer.name, index)] for index in range(len(layer.task.results)))
        known = [name for name in results if name is not None]
        nodes = self._between({name for name in inputs if name is not None}, known)
        complete = len(known) == len(results)
        return LayerTensors(layer.name, inputs, results, nodes if complete else (), self._encoded(layer))

    def _encoded(self, layer: Layer) -> tuple[str, str, str] | None:
        nodes = [self._nodes[self._order[name]] for name in layer.nodes if name in self._order]
        products = {node.name: node for node in nodes if node.op_type == ENCODED}
        # The layer may also reshape what the next product reads; it is named after its own.
        own = products.get(layer.name.partition("#")[0])
        if own is None and len(products) == 1:
            (own,) = products.values()
        if own is None or ATTRIBUTE not in layer.task.body:
            return None
        return own.name, own.input[0], own.output[0]

    def _between(self, inputs: set[str], results: list[str]) -> tuple[str, ...]:
        """Nodes that compute ``results`` from ``inputs``; empty if they need other tensors as well."""
        nodes: set[str] = set()
        pending = [name for name in results if name not in inputs]
        while pending:
            name = pending.pop()
            node = self._editor.producer(name)
            if node is None and not self._editor.is_constant(name):
                return ()
            if node is not None and node.name not in nodes:
                nodes.add(node.name)
                pending.extend(read for read in names_read(node) if read not in inputs)
        return tuple(sorted(nodes, key=self._order.__getitem__))


def _is_regrouped(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether dimensions of one shape were only joined or split to give the other: a transposed tensor does not fit."""
    if math.prod(one) != math.prod(other):
        return False
    first, second = (set(itertools.accumulate(shape, operator.mul)) | {1, math.prod(shape)} for shape in (one, other))
    return first <= second or second <= first

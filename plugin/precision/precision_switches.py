"""Adds switches to a model: an input selects, at run time, the narrower element type that each layer simulates.

An ``If`` follows every layer; several follow a node of which several layers compute parts, such as a Split. It returns
the layer's result, or computes the layer again from rounded inputs and weights and rounds the result. Layers that are
switched off cost no extra time and stay in the main graph, where ONNX Runtime optimises them as usual.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.variants.rounding import FACTOR, ROWS, STORED, WEIGHTS
from sartor.frontend.layer_tensors import ENCODED, LayerTensors
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset
from sartor.onnx_model.graphs.walk import subgraphs
from sartor.precision.fake_quantisation import (
    BF16,
    F16,
    I8,
    TF32,
    FakeQuantiser,
    holds_reals,
    multiplied,
    multiplies_rows,
    rounded_weights,
)
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.workers.shared_arrays import StoredArrays

_IN_BLOCKS = tuple(FOUR_BITS.values())
_CODES = {BF16: 1, F16: 2, I8: 3, STORED: 4, TF32: 5, ROWS: 6, FACTOR: 7, WEIGHTS: 8}
_CODES |= {name: code for code, name in enumerate(_IN_BLOCKS, len(_CODES) + 1)}


@dataclass(frozen=True)
class PrecisionSwitches:
    """Layers that can be switched, and the types that each can simulate.

    Attributes:
        layers: those whose values all have a name in the model; no two have the same result.
        dtypes: for each layer, of ``tf32``, ``bf16``, ``f16``, ``i8`` and, where filters are rounded for that,
            ``WEIGHTS``, ``STORED``, ``ROWS`` and ``FACTOR``.
        ranges: the 8-bit range of activations, by tensor.
        rounded: as for ``Calibration``.
    """

    layers: tuple[LayerTensors, ...]
    dtypes: tuple[tuple[str, ...], ...]
    ranges: tuple[tuple[str, QuantisedRange], ...]
    rounded: StoredArrays | None = None

    @staticmethod
    def of(
        model: ModelProto,
        layers: Sequence[LayerTensors],
        dtypes: Sequence[str],
        ranges: Mapping[str, QuantisedRange],
    ) -> PrecisionSwitches:
        """The layers that can be switched.

        Results need names, and some value must be a real number; for ``i8`` all real inputs and results need ranges.
        Layers with filters also offer ``STORED``: filters exact, activations in 8 bits, and ``WEIGHTS``, the opposite,
        which needs no range. Those that multiply rows offer ``ROWS``, which needs none, and ``FACTOR``, which needs
        that of what is multiplied. Of products by weights in blocks of integers, of which nothing else is rounded, the
        product alone is switched, whatever else the layer computes.
        """
        editor = GraphEditor(model.graph)
        nodes = {node.name: node for node in model.graph.node}
        switched: dict[LayerTensors, tuple[str, ...]] = {}
        taken: set[str | None] = set()
        for layer in map(_by_its_product, layers):
            reals = _reals((*layer.inputs, *layer.results), editor)
            if reals and _is_plain(layer, nodes) and taken.isdisjoint(layer.results):
                has_filters = any(rounded_weights(nodes[name], editor) for name in layer.nodes)
                rows = {nodes[name].input[0] for name in layer.nodes if multiplies_rows(nodes[name], editor)}
                in_blocks = dict.fromkeys(_IN_BLOCKS, has_filters and bool(rows))
                is_offered = {I8: reals <= ranges.keys(), **in_blocks}
                possible = [dtype for dtype in dtypes if is_offered.get(dtype, True)]
                has_rows = I8 in dtypes and bool(rows)
                has_factor = has_rows and rows <= ranges.keys()
                stored = (STORED, I8 in possible and has_filters), (WEIGHTS, I8 in dtypes and has_filters)
                others = (*stored, (ROWS, has_rows), (FACTOR, has_factor))
                switched[layer] = (*possible, *(dtype for dtype, applies in others if applies))
                taken.update(layer.results)
        return PrecisionSwitches(tuple(switched), tuple(switched.values()), tuple(sorted(ranges.items(), key=_first)))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every layer's name with every type that it can be switched to."""
        return [
            (layer.layer, dtype) for layer, dtypes in zip(self.layers, self.dtypes, strict=True) for dtype in dtypes
        ]

    def codes(self, assignment: Mapping[str, str]) -> np.ndarray:
        """The value of the switches' input: an ``int64`` code for each of ``layers``, from types by layer name."""
        pairs = zip(self.layers, self.dtypes, strict=True)
        return np.array([_code(assignment.get(layer.layer, ""), dtypes) for layer, dtypes in pairs], np.int64)


def _by_its_product(layer: LayerTensors) -> LayerTensors:
    """The product by a weight in blocks of integers that a layer computes; the layer if it has none."""
    if layer.encoded is None:
        return layer
    name, read, written = layer.encoded
    return replace(layer, inputs=(read,), results=(written,), nodes=(name,))


def _code(dtype: str, dtypes: Sequence[str]) -> int:
    """The code of a type, 0 if the layer does not offer it; without filters ``STORED`` is the same as ``I8``."""
    chosen = I8 if dtype == STORED and STORED not in dtypes else dtype
    return _CODES[chosen] if chosen in dtypes else 0


def _first(item: tuple[str, QuantisedRange]) -> str:
    return item[0]


def _is_plain(layer: LayerTensors, nodes: Mapping[str, NodeProto]) -> bool:
    """Whether a layer consists of nodes without subgraphs, the last of which computes all results."""
    if not layer.nodes or any(any(subgraphs(nodes[name])) for name in layer.nodes):
        return False
    return set(layer.results) <= set(nodes[layer.nodes[-1]].output)


def _reals(tensors: Iterable[str | None], editor: GraphEditor) -> set[str]:
    return {name for name in tensors if name is not None and holds_reals(editor, name)}


def add_switches(model: ModelProto, switches: PrecisionSwitches) -> str:
    """Make a model switchable, in place; returns the name of the input that takes ``PrecisionSwitches.codes``."""
    return _SwitchWriter(model, switches).add()


class _SwitchWriter:
    def __init__(self, model: ModelProto, switches: PrecisionSwitches) -> None:
        self._model = model
        self._switches = switches
        self._editor = GraphEditor(model.graph)
        self._ranges = dict(switches.ranges)
        self._nodes = {node.name: node for node in model.graph.node}
        self._input = self._editor.fresh("precision")

    def add(self) -> str:
        """Add the input and an ``If`` after every layer."""
        graph, layers = self._model.graph, self._switches.layers
        ending: dict[str, list[int]] = defaultdict(list)
        for index, layer in enumerate(layers):
            ending[layer.nodes[-1]].append(index)
        nodes: list[NodeProto] = []
        for node in list(graph.node):
            nodes.append(node)
            for index in ending[node.name]:
                nodes.extend(self._switch(index, layers[index]))
        exact = {name: self._exact(name) for layer in layers for name in layer.results if name is not None}
        for node in self._nodes.values():
            node.output[:] = [exact.get(name, name) for name in node.output]
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        graph.input.append(helper.make_tensor_value_info(self._input, TensorProto.INT64, [len(layers)]))
        return self._input

    def _exact(self, name: str) -> str:
        return f"{self._input}/exact/{name}"

    def _switch(self, index: int, layer: LayerTensors) -> list[NodeProto]:
        """Nodes that select between a layer's exact result and its rounded ones by the layer's code."""
        prefix = f"{self._input}/{index}"
        where, code = f"{prefix}/index", f"{prefix}/code"
        self._model.graph.initializer.append(numpy_helper.from_array(np.array(index, np.int64), where))
        results = [name for name in layer.results if name is not None]
        body = self._handing_on(prefix, results)
        for dtype in self._switches.dtypes[index]:
            rounded = self._rounded(f"{prefix}/{dtype}/", layer, dtype)
            body = self._choice(f"{prefix}/choose-{dtype}", code, _CODES[dtype], rounded, body)
        nodes = [helper.make_node("Gather", [self._input, where], [code], name=code), *body.node]
        renamed = dict(zip([value.name for value in body.output], results, strict=True))
        for node in nodes:
            node.output[:] = [renamed.get(name, name) for name in node.output]
        self._model.graph.initializer.extend(body.initializer)
        return nodes

    def _handing_on(self, prefix: str, results: Sequence[str]) -> GraphProto:
        names = [f"{prefix}/same/{name}" for name in results]
        nodes = [
            helper.make_node("Identity", [self._exact(old)], [new]) for old, new in zip(results, names, strict=True)
        ]
        return self._body(nodes, names, results, [])

    def _choice(self, prefix: str, code: str, number: int, then: GraphProto, other: GraphProto) -> GraphProto:
        """A graph that runs ``then`` if the layer's code is ``number``, and ``other`` if not."""
        wanted, equal = f"{prefix}/number", f"{prefix}/equal"
        names = [f"{prefix}/{value.name}" for value in other.output]
        nodes = [
            helper.make_node("Equal", [code, wanted], [equal]),
            helper.make_node("If", [equal], names, then_branch=then, else_branch=other, name=f"{prefix}/if"),
        ]
        constant = numpy_helper.from_array(np.array(number, np.int64), wanted)
        outputs = [ValueInfoProto(name=name, type=value.type) for value, name in zip(other.output, names, strict=True)]
        return _graph(nodes, outputs, [constant])

    def _rounded(self, prefix: str, layer: LayerTensors, dtype: str) -> GraphProto:
        """A graph that computes a layer with inputs, weights and results rounded to ``dtype``."""
        quantiser = FakeQuantiser(self._editor, dtype, self._ranges, prefix, opset(self._model), self._switches.rounded)
        values = {
            name: quantiser.activation(name, name)
            for name in dict.fromkeys(input_ for input_ in layer.inputs if input_ is not None)
            if holds_reals(self._editor, name) and not quantiser.rounds_products_only
        }
        for name in layer.nodes:
            self._copy(self._nodes[name], quantiser, values)
        results = [name for name in layer.results if name is not None]
        names = [self._result(quantiser, name, values[name]) for name in results]
        return self._body(quantiser.nodes, names, results, quantiser.constants)

    def _result(self, quantiser: FakeQuantiser, name: str, value: str) -> str:
        is_rounded = holds_reals(self._editor, name) and not quantiser.rounds_products_only
        return quantiser.activation(name, value) if is_rounded else value

    def _copy(self, node: NodeProto, quantiser: FakeQuantiser, values: dict[str, str]) -> None:
        """Add a copy of a node that reads rounded values and writes values with new names."""
        copy = NodeProto.FromString(node.SerializeToString())
        weights = {} if quantiser.rounds_products_only else rounded_weights(node, self._editor)
        for index, name in enumerate(node.input):
            copy.input[index] = quantiser.weight(name, weights[index]) if index in weights else values.get(name, name)
        for index in multiplied(node, self._editor) if quantiser.rounds_products_only else ():
            copy.input[index] = quantiser.activation(node.input[index], copy.input[index])
        if quantiser.dtype == ROWS and multiplies_rows(node, self._editor):
            copy.input[0] = _rounded_rows(quantiser, node, copy.input[0])
        if quantiser.dtype == FACTOR and multiplies_rows(node, self._editor):
            copy.input[0] = quantiser.factor(node.input[0], copy.input[0])
        for index, name in enumerate(node.output):
            if name:
                copy.output[index] = values[name] = f"{quantiser.prefix}{name}"
        copy.name = f"{quantiser.prefix}{node.name}"
        quantiser.nodes.append(copy)

    def _body(
        self, nodes: Sequence[NodeProto], names: Sequence[str], like: Sequence[str], constants: Sequence[TensorProto]
    ) -> GraphProto:
        """A graph whose outputs have the types of the given tensors of the model."""
        types = [self._editor.type(name) for name in like]
        outputs = [ValueInfoProto(name=name, type=kind) for name, kind in zip(names, types, strict=True)]
        return _graph(nodes, outputs, constants)


def _rounded_rows(quantiser: FakeQuantiser, node: NodeProto, value: str) -> str:
    """Round what a node multiplies as its kernel does: by rows, or by the blocks of a weight that stays encoded."""
    if node.op_type == ENCODED:
        of = attributes(node)
        return quantiser.blocks(node.input[0], value, int(of["K"]), int(of["block_size"]))
    return quantiser.rows(node.input[0], value)


def _graph(
    nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto], constants: Sequence[TensorProto]
) -> GraphProto:
    return helper.make_graph(list(nodes), "body", [], list(outputs), list(constants))

"""A network for Model Explorer (``ai-edge-model-explorer``): its layers as a graph, and times as node data.

The forms are those of its ``graph_builder.py`` and ``node_data_builder.py``. Layers are nodes; the ids of both files
are positions, as names need not suit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sartor.errors import UsageError
from sartor.report.subject import Subject
from sartor.tuning.records.network import NETWORK_INPUT, Network, NetworkLayer
from sartor.tuning.records.plan import LayerChoice

_GRADIENT = ({"stop": 0, "bgColor": "#edf2f8"}, {"stop": 0.5, "bgColor": "#f2b13d"}, {"stop": 1, "bgColor": "#b3261e"})
_MILLI = 1e3


def graph_collections(subject: Subject) -> list[dict[str, Any]]:
    """The layers with their edges, routines and tensors, as the file that Model Explorer opens.

    Raises:
        UsageError: if the module was compiled by a version that did not record its network.
    """
    network = _network(subject)
    chosen = {layer.layer: layer for layer in subject.plan.layers}
    inputs = [
        {"id": f"input {index}", "label": spec.name, "outputsMetadata": [_output(0, str(spec), "")]}
        for index, spec in enumerate(subject.manifest.inputs)
    ]
    nodes = [_node(index, layer, chosen.get(layer.name)) for index, layer in enumerate(network.layers)]
    outputs = [
        {"id": f"output {index}", "label": spec.name, "incomingEdges": [_edge(source, result, 0)]}
        for index, (spec, (source, result)) in enumerate(zip(subject.manifest.outputs, network.outputs, strict=False))
    ]
    graph = {"id": subject.manifest.entry, "nodes": [*inputs, *nodes, *outputs]}
    return [{"label": subject.name, "graphs": [graph]}]


def node_data(subject: Subject) -> dict[str, Any]:
    """Milliseconds of each layer, in the network if known, as a file of node data for the same graph.

    Raises:
        UsageError: as ``graph_collections``.
    """
    taken = {layer.layer: layer.in_place or layer.seconds for layer in subject.plan.layers}
    results = {
        f"layer {index}": {"value": seconds * _MILLI}
        for index, layer in enumerate(_network(subject).layers)
        if (seconds := taken.get(layer.name))
    }
    return {subject.manifest.entry: {"results": results, "gradient": list(_GRADIENT)}}


def _network(subject: Subject) -> Network:
    if subject.network is None:
        raise UsageError(
            f"'{subject.name}' was compiled by a version that did not record its network; compile it again"
        )
    return subject.network


def _node(index: int, layer: NetworkLayer, choice: LayerChoice | None) -> dict[str, Any]:
    facts = {"kind": layer.kind, "ONNX nodes": ", ".join(layer.nodes), **dict(_facts(choice))}
    namespace, _, label = layer.name.strip("/").rpartition("/")
    return {
        "id": f"layer {index}",
        "label": label or layer.name,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in facts.items()],
        "incomingEdges": [_edge(source, result, slot) for slot, (source, result) in enumerate(layer.inputs)],
        "outputsMetadata": [_output(number, tensor.type, tensor.form) for number, tensor in enumerate(layer.results)],
    }


def _facts(choice: LayerChoice | None) -> Iterator[tuple[str, str]]:
    if choice is not None:
        yield "routine", choice.variant
        yield "type", choice.dtype
        for name, seconds in (("predicted ms", choice.seconds), ("in the network ms", choice.in_place)):
            if seconds is not None:
                yield name, f"{seconds * _MILLI:.4g}"


def _edge(source: int, result: int, slot: int) -> dict[str, str]:
    is_input = source == NETWORK_INPUT
    return {
        "sourceNodeId": f"input {result}" if is_input else f"layer {source}",
        "sourceNodeOutputId": "0" if is_input else str(result),
        "targetNodeInputId": str(slot),
    }


def _output(index: int, shape: str, form: str) -> dict[str, Any]:
    facts = {"tensor_shape": shape, **({"form": form} if form else {})}
    return {"id": str(index), "attrs": [{"key": key, "value": value} for key, value in facts.items()]}

"""Removes nodes and initialisers on which no output depends. The model's inputs stay, as they are its signature."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from sartor.onnx_model.graphs.walk import drop_named, names_read, subgraphs


def drop_unused(model: ModelProto) -> tuple[str, ...]:
    """Remove unused nodes, initialisers and value descriptions, in bodies too; returns the removed nodes' names."""
    return tuple(_drop(model.graph))


def _drop(graph: GraphProto) -> list[str]:
    needed = {value.name for value in graph.output}
    alive: list[NodeProto] = []
    dead: list[str] = []
    for node in reversed(graph.node):
        if any(output in needed for output in node.output):
            needed |= names_read(node)
            alive.append(node)
        else:
            dead.append(node.name)
    if dead:
        copies = [NodeProto.FromString(node.SerializeToString()) for node in reversed(alive)]
        del graph.node[:]
        graph.node.extend(copies)
    for items in (graph.initializer, graph.value_info):
        drop_named(items, lambda name: name not in needed)
    del graph.quantization_annotation[:]
    for node in graph.node:
        for body in subgraphs(node):
            dead.extend(_drop(body))
    return dead[::-1]

"""Removes nodes and initialisers on which no output depends, and operands that are none.

The model's inputs stay, as they are its signature.
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from sartor.onnx_model.graphs.walk import drop_named, names_read, nodes, subgraphs


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


def given_operands(model: ModelProto) -> tuple[str, ...]:
    """Drop empty names behind a node's last operand, in place; returns the nodes' names.

    ONNX reads them as operands that are left out, as exporters and inlined functions write them. Of a Conv, Resize or
    Pad that has them IREE 3.13's importer counts them as operands, and refuses the node or crashes.
    """
    changed: list[str] = []
    for node in nodes(model):
        # A Loop's first two operands may both be left out, and their names are counted.
        if not node.input or node.input[-1] or any(subgraphs(node)):
            continue
        while node.input and not node.input[-1]:
            del node.input[-1]
        changed.append(node.name)
    return tuple(changed)

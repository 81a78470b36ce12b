"""Moves the constants of bodies of conditionals and loops to the main graph, where the importer finds them."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, rename_reads
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import subgraphs


def lift_initializers(model: ModelProto) -> tuple[str, ...]:
    """Make initialisers of bodies those of the main graph, called ``<node>/<name>``; returns their old names.

    IREE's importer keeps weights outside the module for the main graph only.
    """
    editor = GraphEditor(model.graph)
    lifted: list[str] = []
    for node in model.graph.node:
        for body in subgraphs(node):
            lifted.extend(_lift(body, node.name, editor))
    return tuple(lifted)


def _lift(body: GraphProto, owner: str, editor: GraphEditor) -> list[str]:
    names = [tensor.name for tensor in body.initializer]
    renamed = {name: editor.fresh(f"{owner}/{name}") for name in names}
    for tensor in body.initializer:
        editor.set_constant(renamed[tensor.name], to_array(tensor))
    del body.initializer[:]
    rename_reads(body, renamed)
    # ONNX Runtime wants that a body computes what it returns.
    returned = dict.fromkeys(value.name for value in body.output if value.name in renamed)
    body.node.extend(
        helper.make_node("Identity", [renamed[name]], [name], name=editor.fresh_node(f"{owner}/{name}"))
        for name in returned
    )
    inner = [lifted for node in body.node for graph in subgraphs(node) for lifted in _lift(graph, owner, editor)]
    return [*names, *inner]

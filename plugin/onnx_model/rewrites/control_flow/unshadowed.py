"""Gives values inside bodies names of their own, where the graph around has a value of the same name."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ModelProto

from sartor.onnx_model.graphs.names import TakenNames
from sartor.onnx_model.graphs.walk import defined_names, graphs, subgraphs


def unshadowed(model: ModelProto) -> tuple[str, ...]:
    """Rename values of bodies that are called like one of a graph around them; returns their old names.

    The specification forbids such names for what nodes compute, and exporters give them nevertheless. IREE's importer
    and rewrites find values by name alone: they would take one for the other.
    """
    taken = TakenNames(name for graph in graphs(model) for name in defined_names(graph))
    renamed: list[str] = []
    _visit(model.graph, frozenset(), {}, taken, renamed)
    return tuple(renamed)


def _visit(
    graph: GraphProto, around: frozenset[str], given: Mapping[str, str], taken: TakenNames, renamed: list[str]
) -> None:
    """Rename what a graph defines and reads, in place; ``given`` are new names of what is defined around it."""
    defined = frozenset(defined_names(graph))
    own = {name: taken.fresh(name) for name in sorted(defined & around)}
    renamed += own
    names = {old: new for old, new in given.items() if old not in defined} | own
    if names:
        _rename(graph, own, names)
    for node in graph.node:
        for body in subgraphs(node) if node.attribute else ():
            _visit(body, around | defined, names, taken, renamed)


def _rename(graph: GraphProto, own: Mapping[str, str], names: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.value_info):
        value.name = own.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = own.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = own.get(sparse.values.name, sparse.values.name)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [own.get(name, name) for name in node.output]

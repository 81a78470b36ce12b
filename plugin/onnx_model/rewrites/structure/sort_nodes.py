"""Sorts nodes topologically. ONNX requires that order, and some exporters do not produce it."""

from __future__ import annotations

import heapq
from collections import defaultdict

from onnx import GraphProto, ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, graphs, names_read


def sort_nodes(model: ModelProto) -> tuple[str, ...]:
    """Sort the nodes of every graph so that values are computed before they are read; a sorted graph keeps its order.

    Returns:
        The names of the nodes that moved.

    Raises:
        UnsupportedModelError: two nodes compute the same value, or nodes depend on each other in a cycle.
    """
    moved: list[str] = []
    for graph in graphs(model):
        order = _order(graph)
        if order != sorted(order):
            nodes = [NodeProto.FromString(graph.node[index].SerializeToString()) for index in order]
            moved.extend(
                node.name for node, index, place in zip(nodes, order, range(len(order)), strict=True) if index != place
            )
            del graph.node[:]
            graph.node.extend(nodes)
    return tuple(moved)


def _order(graph: GraphProto) -> list[int]:
    """Kahn's algorithm. It takes the earliest node that is ready, so that a sorted graph keeps its order."""
    producer = _producers(graph)
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.node):
        needed = {producer[name] for name in names_read(node) if name in producer}
        waiting[index] = len(needed)
        for source in needed:
            readers[source].append(index)
    ready = [index for index, count in waiting.items() if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    if len(order) != len(graph.node):
        stuck = next(index for index, count in waiting.items() if count)
        raise UnsupportedModelError(
            f"{describe_node(graph.node[stuck])} depends on its own result: the graph has a cycle; export it again"
        )
    return order


def _producers(graph: GraphProto) -> dict[str, int]:
    """The index of the node that computes each value, of constants with one name the last, as in ONNX Runtime."""
    producer: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for output in node.output:
            if output in producer and not _are_constants(node, graph.node[producer[output]]):
                raise UnsupportedModelError(
                    f"{describe_node(node)} computes {output!r}, which another node computes too; the file is damaged"
                )
            if output:
                producer[output] = index
    return producer


def _are_constants(*nodes: NodeProto) -> bool:
    return all(node.op_type == "Constant" for node in nodes)

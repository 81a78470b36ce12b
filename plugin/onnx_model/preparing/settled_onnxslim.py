"""onnxslim without work that changes nothing: it compares a model with itself, describes what is described, and sorts
what is sorted. The result is the same.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

from sartor.onnx_model.graphs.graph import static_shape

_CORE, _UTILITIES = "onnxslim.core", "onnxslim.utils"
_GRAPH = "onnxslim.third_party.onnx_graphsurgeon.ir.graph"


@functools.cache
def skip_settled() -> None:
    """Change onnxslim, in this process."""
    core: Any = importlib.import_module(_CORE)
    utilities: Any = importlib.import_module(_UTILITIES)
    graph_class: Any = importlib.import_module(_GRAPH).Graph
    checked, inferred, toposort = utilities.check_point, core.shape_infer, graph_class.toposort

    def sort(graph: Any, *given: Any, **named: Any) -> Any:
        return _sorted(graph) or toposort(graph, *given, **named)

    utilities.check_point = lambda model: _CheckPoint(model, checked)
    core.shape_infer = lambda model: model if _is_described(model) else inferred(model)
    graph_class.toposort = sort


class _CheckPoint:
    """A model between two rounds. Only models that are not written alike are compared as graphs, which takes long."""

    def __init__(self, model: ModelProto, graph: Callable[[ModelProto], Any]) -> None:
        self._written = _written(model)
        self._model = ModelProto.FromString(model.SerializeToString())
        self._graph = graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CheckPoint):
            return NotImplemented
        return self._written == other._written or bool(self._graph(self._model) == other._graph(other._model))

    __hash__ = None  # type: ignore[assignment]


def _written(model: ModelProto) -> tuple[object, ...]:
    """What a graph is made of; the order of types and constants does not matter."""
    graph = model.graph
    ordered = [_bytes(each) for each in (graph.node, graph.input, graph.output, model.opset_import, model.functions)]
    return (*ordered, *(frozenset(_bytes(each)) for each in (graph.value_info, graph.initializer)))


def _bytes(messages: Iterable[Message]) -> list[bytes]:
    return [each.SerializeToString(deterministic=True) for each in messages]


def _is_described(model: ModelProto) -> bool:
    """Whether all shapes of a model are known, so that inference finds nothing."""
    graph = model.graph
    values = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}
    known = {name for name, kind in values.items() if static_shape(kind) is not None and kind.tensor_type.elem_type}
    return all(name in known for node in graph.node for name in node.output if name)


def _sorted(graph: Any) -> Any:
    """The graph, with its nodes by their distance from its inputs, if every node is behind those that it reads, and
    none has a body; None otherwise."""
    if graph.functions or any(True for _ in graph.subgraphs()):
        return None
    levels: dict[int, int] = {}
    for node in graph.nodes:
        makers = [id(maker) for tensor in node.inputs for maker in tensor.inputs]
        if any(maker not in levels for maker in makers):
            return None
        levels[id(node)] = 1 + max((levels[maker] for maker in makers), default=-1)
    graph.nodes = sorted(graph.nodes, key=lambda node: levels[id(node)])
    return graph

"""Refuses graphs whose values are not each defined once: what nothing computes, what two nodes compute."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, subgraphs

_AGAIN = "the file is damaged; export the model again"

_Scopes = tuple[frozenset[str], ...]


def check_names(model: ModelProto) -> None:
    """Check the model's graph, the bodies inside it, and its functions.

    A body may hide a name of the graph around it, which the specification forbids and exporters do.

    Raises:
        UnsupportedModelError: naming the value, and the node that reads or computes it.
    """
    _check_graph(model.graph, ())
    for function in model.functions:
        _check_function(function)


def _check_graph(graph: GraphProto, outer: _Scopes) -> None:
    constants = [tensor.name for tensor in graph.initializer]
    constants += [tensor.values.name for tensor in graph.sparse_initializer]
    inputs = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    for what, names in (("constant", constants), ("input", inputs), ("output", outputs)):
        _check_given(what, names)
    # An input of a constant's name has that value unless the caller gives another.
    scopes = (*outer, _check_computed(graph.node, {*constants, *inputs}))
    _check_read(graph.node, scopes)
    for name in outputs:
        if not _is_known(name, scopes):
            raise UnsupportedModelError(f"nothing computes the output {name!r}; {_AGAIN}")


def _check_function(function: FunctionProto) -> None:
    _check_given("parameter", function.input)
    scopes = (_check_computed(function.node, set(function.input)),)
    _check_read(function.node, scopes)
    for name in function.output:
        if not _is_known(name, scopes):
            raise UnsupportedModelError(f"nothing computes the result {name!r} of function {function.name!r}; {_AGAIN}")


def _check_given(what: str, names: Iterable[str]) -> None:
    """What a graph lists has names, no two the same."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise UnsupportedModelError(f"{what} {index} of the model has no name; {_AGAIN}")
        if name in seen:
            raise UnsupportedModelError(f"two {what}s of the model are called {name!r}; {_AGAIN}")
        seen.add(name)


def _check_computed(nodes: Iterable[NodeProto], given: set[str]) -> frozenset[str]:
    """Every value is computed by one node; returns the names of all values there are."""
    known = set(given)
    for node in nodes:
        for name in node.output:
            if name in known:
                other = "is given as well" if name in given else "another node computes too"
                raise UnsupportedModelError(f"{describe_node(node)} computes {name!r}, which {other}; {_AGAIN}")
            if name:
                known.add(name)
    return frozenset(known)


def _check_read(nodes: Iterable[NodeProto], scopes: _Scopes) -> None:
    for node in nodes:
        for name in node.input:
            if name and not _is_known(name, scopes):
                raise UnsupportedModelError(f"{describe_node(node)} reads {name!r}, which nothing computes; {_AGAIN}")
        for body in subgraphs(node):
            _check_graph(body, scopes)


def _is_known(name: str, scopes: _Scopes) -> bool:
    return any(name in scope for scope in reversed(scopes))

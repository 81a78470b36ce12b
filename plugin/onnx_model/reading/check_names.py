"""Refuses graphs with values that are read but not defined, or defined more than once."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, subgraphs

_AGAIN = "the file is damaged; export the model again"

# ONNX Runtime 1.32 leaves one of two results of the same name without values.
_RETURNING_ONCE = ("If", "Scan")

_Scopes = tuple[frozenset[str], ...]


def check_names(model: ModelProto) -> None:
    """Check the model's graph, the bodies inside it, and its functions.

    A body may redefine a name of the enclosing graph: the specification forbids that, but exporters do it.

    Raises:
        UnsupportedModelError: if not; the message names the value, and the node that reads or computes it.
    """
    _check_graph(model.graph, ())
    for function in model.functions:
        _check_function(function)


def _check_graph(graph: GraphProto, outer: _Scopes, owner: NodeProto | None = None) -> None:
    constants = [tensor.name for tensor in graph.initializer]
    constants += [tensor.values.name for tensor in graph.sparse_initializer]
    inputs = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    where = f"a body of {describe_node(owner)}" if owner is not None else "the model"
    for what, names in (("constant", constants), ("input", inputs)):
        _check_given(what, names, where)
    _check_returned(outputs, owner, where)
    # An input with the name of a constant has the constant as its default value.
    scopes = (*outer, _check_computed(graph.node, {*constants, *inputs}))
    _check_read(graph.node, scopes)
    for name in outputs:
        if not _is_known(name, scopes):
            raise UnsupportedModelError(f"nothing computes the output {name!r}; {_AGAIN}")


def _check_returned(names: list[str], owner: NodeProto | None, where: str) -> None:
    """Check that a graph returns each value once; the body of a loop may return one as its state and as a result."""
    distinct = dict.fromkeys(names)
    _check_given("output", names if owner is None else distinct, where)
    if owner is not None and owner.op_type in _RETURNING_ONCE and len(distinct) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UnsupportedModelError(
            f"{describe_node(owner)} has a body that returns {twice!r} twice, of which ONNX Runtime computes one only; "
            "return an Identity of it in its place"
        )


def _check_function(function: FunctionProto) -> None:
    _check_given("parameter", function.input, f"function {function.name!r}")
    scopes = (_check_computed(function.node, set(function.input)),)
    _check_read(function.node, scopes)
    for name in function.output:
        if not _is_known(name, scopes):
            raise UnsupportedModelError(f"nothing computes the result {name!r} of function {function.name!r}; {_AGAIN}")


def _check_given(what: str, names: Iterable[str], where: str) -> None:
    """Check that a graph's inputs, outputs or constants have distinct names."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise UnsupportedModelError(f"{what} {index} of {where} has no name; {_AGAIN}")
        if name in seen:
            raise UnsupportedModelError(f"two {what}s of {where} are called {name!r}; {_AGAIN}")
        seen.add(name)


def _check_computed(nodes: Iterable[NodeProto], given: set[str]) -> frozenset[str]:
    """Check that every value is computed by one node; returns the names of all values.

    Several nodes of constants may have one name, as exporters write them: the last one counts, as in ONNX Runtime.
    """
    known, constants = set(given), set[str]()
    for node in nodes:
        is_constant = node.op_type == "Constant"
        for name in node.output:
            if name in known and not (is_constant and name in constants):
                other = "is given as well" if name in given else "another node computes too"
                raise UnsupportedModelError(f"{describe_node(node)} computes {name!r}, which {other}; {_AGAIN}")
            if name:
                known.add(name)
                constants |= {name} if is_constant else set()
    return frozenset(known)


def _check_read(nodes: Iterable[NodeProto], scopes: _Scopes) -> None:
    for node in nodes:
        for name in node.input:
            if name and not _is_known(name, scopes):
                raise UnsupportedModelError(f"{describe_node(node)} reads {name!r}, which nothing computes; {_AGAIN}")
        for body in subgraphs(node):
            _check_graph(body, scopes, node)


def _is_known(name: str, scopes: _Scopes) -> bool:
    return any(name in scope for scope in reversed(scopes))

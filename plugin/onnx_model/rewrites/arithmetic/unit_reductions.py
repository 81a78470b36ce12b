"""Writes out norms and logarithms of sums over single elements."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input, rewrite_nodes

_OF_ONE = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceLogSumExp": "Identity"}


def written_unit_reductions(model: ModelProto) -> tuple[str, ...]:
    """Replace reductions over dimensions of one element by what they compute of it; returns the nodes' names.

    IREE 3.13 aborts on those of ``ReduceL2`` and ``ReduceLogSumExp``: "dialect conversion attempted to replace a root
    operation that has no parent block".
    """
    return rewrite_nodes(model, _written)


def _written(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type not in _OF_ONE:
        return None
    before, after = editor.shape(node.input[0]), editor.shape(node.output[0])
    if before is None or after is None:
        return None
    axes = reduced_axes(node, editor, len(before))
    if axes is None or any(before[axis] != 1 for axis in axes):
        return None
    emit = Emitter(editor, node)
    value = emit(_OF_ONE[node.op_type], node.input[0])
    emit("Reshape", value, emit.constant(list(after), "shape"), part="shape", output=node.output[0])
    return emit.nodes


def reduced_axes(node: NodeProto, editor: GraphEditor, rank: int) -> list[int] | None:
    """The reduced axes: all of them if none are given; None if they are computed, or if nothing is reduced then."""
    found = attributes(node)
    axes: list[int] = found.get("axes", [])
    if name := optional_input(node, 1):
        given = editor.constant(name)
        if given is None:
            return None
        axes = given.tolist()
    if not axes and found.get("noop_with_empty_axes"):
        return None
    return axes or list(range(rank))

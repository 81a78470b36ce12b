"""Gives Expand the shape of its result."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, optional_input, rewrite_nodes


def expand_to_result(model: ModelProto) -> tuple[str, ...]:
    """Replace shapes of ``Expand`` in which sizes are 1, or left out, where the value's are larger.

    IREE 3.13 fails on shapes of fewer dimensions than the value has.
    """
    return rewrite_nodes(model, _expanded)


def _expanded(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "Expand":
        return None
    given, result = editor.constant(optional_input(node, 1)), editor.shape(node.output[0])
    if given is None or result is None or len(given) == len(result):
        return None
    emit = Emitter(editor, node)
    emit("Expand", node.input[0], emit.constant(list(result), "shape"), output=node.output[0])
    return emit.nodes

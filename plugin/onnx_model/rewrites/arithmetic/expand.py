"""Gives Expand the shape of its result."""

from __future__ import annotations

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite, optional_input


@node_rewrite("Expand")
def expand_to_result(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace shapes of ``Expand`` in which sizes are 1, or left out, where the value's are larger.

    IREE 3.13 fails on shapes of fewer dimensions than the value has.
    """
    given, result = editor.constant(optional_input(node, 1)), editor.shape(node.output[0])
    if given is None or result is None or len(given) == len(result):
        return None
    emit = Emitter(editor, node)
    emit("Expand", node.input[0], emit.constant(list(result), "shape"), output=node.output[0])
    return emit.nodes

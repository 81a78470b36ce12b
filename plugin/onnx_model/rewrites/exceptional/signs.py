"""Writes out signs that IREE computes through floats, or as if they were of another type."""

from __future__ import annotations

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite


@node_rewrite("Abs", "Neg", "Sign")
def exact_signs(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write ``Neg`` of integers as a difference, ``Abs`` of unsigned ones as nothing, and keep NaN in ``Sign``.

    IREE 3.13 negates integers in float32, which rounds what is above 2**24, takes unsigned integers for signed ones,
    and gives NaN the sign 0.
    """
    if not editor.element_type(node.input[0]):
        return None
    emit, source, output = Emitter(editor, node), node.input[0], node.output[0]
    is_integer = emit.dtype(source).kind in "iu"
    if node.op_type == "Neg" and is_integer:
        emit("Sub", emit.like(0, source, "zero"), source, output=output)
    elif node.op_type == "Abs" and emit.dtype(source).kind == "u":
        emit("Identity", source, output=output)
    elif node.op_type == "Sign" and not is_integer:
        is_nan = emit("IsNaN", source, part="is_nan")
        emit("Where", is_nan, source, emit("Sign", source), part="result", output=output)
    else:
        return None
    return emit.nodes

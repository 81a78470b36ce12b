"""Takes operators of any number of operands apart where IREE does not lower them."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, rewrite_nodes

_PAIRED = {"Max": "Max", "Min": "Min", "Sum": "Add", "Mean": "Add"}


def paired_operands(model: ModelProto) -> tuple[str, ...]:
    """Combine three or more operands pair by pair; returns the names of the replaced nodes.

    IREE 3.13 casts the first operands to the shape of the last instead of broadcasting them, and rejects a mean of four
    operands of one shape.
    """
    return rewrite_nodes(model, _paired)


def _paired(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shapes = {editor.shape(name) for name in node.input}
    if node.op_type not in _PAIRED or len(node.input) <= 2 or (len(shapes) == 1 and node.op_type != "Mean"):
        return None
    emit, operator, count = Emitter(editor, node), _PAIRED[node.op_type], len(node.input)
    value, *others = node.input
    for number, other in enumerate(others, 1):
        is_last = number == count - 1 and node.op_type != "Mean"
        part = "" if number == count - 1 else f"pair{number}"
        value = emit(operator, value, other, part=part, output=node.output[0] if is_last else "")
    if node.op_type == "Mean":
        emit("Div", value, emit.like(count, node.input[0], "count"), part="mean", output=node.output[0])
    return emit.nodes

"""Operators of any number of operands: taken apart, or written out, where IREE does not import them."""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes

_ARROW = "->"
_ELLIPSIS = "..."
_PAIRED = {"Max": "Max", "Min": "Min", "Sum": "Add", "Mean": "Add"}


def paired_operands(model: ModelProto) -> tuple[str, ...]:
    """Combine three or more operands pair by pair; returns the names of the replaced nodes.

    IREE 3.13 casts the first operands to the shape of the last instead of broadcasting them, rejects a mean of four
    operands of one shape, and keeps NaN of a maximum's last operand alone, which ``kept_nan`` mends for two.
    """
    return rewrite_nodes(model, _paired)


def _paired(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shapes = {editor.shape(name) for name in node.input}
    if node.op_type not in _PAIRED or len(node.input) <= 2 or (len(shapes) == 1 and node.op_type == "Sum"):
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


def explicit_equations(model: ModelProto) -> tuple[str, ...]:
    """Give each Einsum the result that its equation leaves out; returns the names of the changed nodes.

    That is the broadcast dimensions, then all letters that occur once, in the order of the alphabet, as in NumPy
    (ONNX operator page of Einsum, version 12). IREE 3.13 imports only equations with an arrow.
    """
    return rewrite_nodes(model, _explicit)


def _explicit(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    read = str(attributes(node).get("equation", "")) if node.op_type == "Einsum" else _ARROW
    if _ARROW in read:
        return None
    letters = Counter(read.replace(_ELLIPSIS, "").replace(",", "").replace(" ", ""))
    written = (_ELLIPSIS if _ELLIPSIS in read else "") + "".join(sorted(each for each, n in letters.items() if n == 1))
    emit = Emitter(editor, node)
    emit("Einsum", *node.input, output=node.output[0], equation=f"{read}{_ARROW}{written}")
    return emit.nodes

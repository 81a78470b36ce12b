"""Operators of any number of operands: taken apart, or written out, where IREE does not import them."""

from __future__ import annotations

from collections import Counter

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

_ARROW = "->"
_ELLIPSIS = "..."
_PAIRED = {"Max": "Max", "Min": "Min", "Sum": "Add", "Mean": "Add"}


@node_rewrite(*_PAIRED)
def paired_operands(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Combine three or more operands pair by pair.

    IREE 3.13 casts the first operands to the shape of the last instead of broadcasting them, rejects a mean of four
    operands of one shape, and keeps NaN of a maximum's last operand alone, which ``kept_nan`` mends for two.
    """
    shapes = {editor.shape(name) for name in node.input}
    if len(node.input) <= 2 or (len(shapes) == 1 and node.op_type == "Sum"):
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


@node_rewrite()
def explicit_equations(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Give each Einsum the result that its equation leaves out.

    That is the broadcast dimensions, then all letters that occur once, in the order of the alphabet, as in NumPy
    (ONNX operator page of Einsum, version 12). IREE 3.13 imports only equations with an arrow.
    """
    read = str(attributes(node).get("equation", "")) if node.op_type == "Einsum" else _ARROW
    if _ARROW in read:
        return None
    letters = Counter(read.replace(_ELLIPSIS, "").replace(",", "").replace(" ", ""))
    written = (_ELLIPSIS if _ELLIPSIS in read else "") + "".join(
        sorted(letter for letter, n in letters.items() if n == 1)
    )
    emit = Emitter(editor, node)
    emit("Einsum", *node.input, output=node.output[0], equation=f"{read}{_ARROW}{written}")
    return emit.nodes

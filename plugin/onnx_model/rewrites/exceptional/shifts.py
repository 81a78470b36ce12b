"""Shifts by the width of a number and more, which leave its sign or nothing, and in processors any of many results."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

# Words without sign become other operators (rewrites/number_types/unsigned_words.py).
_WIDTHS: Mapping[int, int] = {
    TensorProto.UINT8: 8,
    TensorProto.INT8: 8,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT64: 64,
}


@node_rewrite("BitShift")
def bounded_shifts(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Let ``BitShift`` shift by less than the width, and put what longer shifts leave.

    A negative distance counts as a long one. LLVM leaves open what such shifts give.
    """
    element = editor.element_type(node.input[0])
    width = _WIDTHS.get(element)
    if width is None:
        return None
    distance = editor.constant(node.input[1])
    if distance is not None and ((distance >= 0) & (distance < width)).all():
        return None
    emit = Emitter(editor, node)
    _shift(emit, width, is_signed=element != TensorProto.UINT8)
    return emit.nodes


def _shift(emit: Emitter, width: int, *, is_signed: bool) -> None:
    (value, distance), direction = emit.node.input, attributes(emit.node)["direction"]
    bounds = ((0, "zero"), (width - 1, "last"), (width, "width"))
    zero, last, wide = (emit.like(number, distance, name) for number, name in bounds)
    is_short = emit("Less", distance, wide, part="short")
    if is_signed:
        is_short = emit("And", is_short, emit("GreaterOrEqual", distance, zero, part="forward"), part="inside")
    if is_signed and direction == "RIGHT":
        # The sign is left.
        count = emit("Where", is_short, distance, last, part="count")
        emit("BitShift", value, count, output=emit.node.output[0], direction=direction)
        return
    count = emit("Where", is_short, distance, zero, part="count")
    shifted = emit("BitShift", value, count, part="shift", direction=direction)
    emit("Where", is_short, shifted, emit.like(0, value, "nothing"), output=emit.node.output[0])

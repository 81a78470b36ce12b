"""Running products, and running sums of types that IREE does not sum so, in logarithmically many steps."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

_OPERATORS = {"CumProd": "Mul", "CumSum": "Add"}


@node_rewrite(*_OPERATORS)
def scan_by_doubling(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Combine each element with the one 1, 2, 4, … before it (Hillis and Steele 1986).

    IREE 3.13 has no CumProd, and fails on CumSum of float64. To exclude the element itself, IREE subtracts it from the
    sum, which is no number behind an infinity and cancels behind a large value: elements are shifted instead.
    """
    if node.op_type == "CumSum" and editor.element_type(node.input[0]) != TensorProto.DOUBLE:
        return _inclusive(node, editor)
    shape, axes = editor.shape(node.input[0]), editor.constant(node.input[1])
    if shape is None or axes is None:
        return None
    emit, settings = Emitter(editor, node), attributes(node)
    axis = int(axes.item()) % len(shape)
    value, distance = node.input[0], 1
    if settings.get("exclusive"):
        value = _shifted(emit, value, shape, axis, 1)
    while distance < shape[axis]:
        before = _shifted(emit, value, shape, axis, distance)
        value = emit(_OPERATORS[node.op_type], value, before, part=f"add{distance}")
        distance *= 2
    emit("Identity", value, output=node.output[0])
    return emit.nodes


def _inclusive(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """An exclusive running sum as an inclusive one of elements that are shifted by one."""
    shape, axes, settings = editor.shape(node.input[0]), editor.constant(node.input[1]), attributes(node)
    if shape is None or axes is None or not settings.get("exclusive") or 0 in shape:
        return None
    if editor.element_type(node.input[0]) not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return None
    emit = Emitter(editor, node)
    shifted = _shifted(emit, node.input[0], shape, int(axes.item()) % len(shape), 1)
    emit("CumSum", shifted, node.input[1], output=node.output[0], reverse=settings.get("reverse"))
    return emit.nodes


def _shifted(emit: Emitter, value: str, shape: tuple[int, ...], axis: int, distance: int) -> str:
    """The elements that come ``distance`` before, in the direction of the scan; the neutral one where there is none."""
    node = emit.node
    is_reverse, neutral = bool(attributes(node).get("reverse")), 1 if node.op_type == "CumProd" else 0
    filled = (*shape[:axis], min(distance, shape[axis]), *shape[axis + 1 :])
    fill = emit.constant(np.full(filled, neutral, emit.dtype(node.input[0])), "neutral")
    first, end = (distance, shape[axis]) if is_reverse else (0, max(shape[axis] - distance, 0))
    bounds = [emit.constant([bound], hint) for bound, hint in ((first, "first"), (end, "end"), (axis, "axis"))]
    kept = emit("Slice", value, *bounds, part=f"kept{distance}")
    joined = (kept, fill) if is_reverse else (fill, kept)
    return emit("Concat", *joined, part=f"shift{distance}", axis=axis)

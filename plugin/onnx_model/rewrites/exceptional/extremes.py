"""Lets Max and Min of two operands keep NaN, and TopK order it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite

# The largest finite number of each type.
_MOST: Mapping[int, float] = {
    TensorProto.FLOAT: float(np.finfo(np.float32).max),
    TensorProto.FLOAT16: float(np.finfo(np.float16).max),
    TensorProto.DOUBLE: float(np.finfo(np.float64).max),
}


@node_rewrite("Max", "Min")
def kept_nan(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Return the first operand of ``Max`` and ``Min`` where it is NaN.

    IREE 3.13 returns the second operand where the comparison fails, so that only its NaN are kept. A constant without
    any is made the first operand, which costs nothing.
    """
    if len(node.input) != 2 or not editor.element_type(node.input[0]):
        return None
    emit, (first, second) = Emitter(editor, node), node.input
    if emit.dtype(first).kind in "iu" or _is_number(editor.constant(first)):
        return None
    if _is_number(editor.constant(second)):
        emit.copy([second, first], node.output[0])
        return emit.nodes
    extreme = emit(node.op_type, first, second)
    emit("Where", emit("IsNaN", first, part="is_nan"), first, extreme, part="result", output=node.output[0])
    return emit.nodes


@node_rewrite("TopK")
def ordered_nan(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Let ``TopK`` take NaN for the largest number, as ONNX Runtime does.

    IREE 3.13 selects by comparisons that fail for NaN, and so does not sort the numbers around one. Infinity gets the
    place of the largest finite number, and NaN that of infinity.
    """
    if editor.element_type(node.input[0]) not in _MOST:
        return None
    emit, settings = Emitter(editor, node), attributes(node)
    source, count = node.input
    values, indices = (*node.output, "")[:2]
    is_nan = emit("IsNaN", source, part="is_nan")
    finite = emit("Min", emit.like(_MOST[editor.element_type(source)], source, "most"), source, part="finite")
    keys = emit("Where", is_nan, emit.like(np.inf, source, "largest"), finite, part="keys")
    _, indices = emit.many("TopK", keys, count, outputs=("", indices), **settings)
    if values:
        emit("GatherElements", source, indices, part="values", output=values, axis=settings.get("axis", -1))
    return emit.nodes


def _is_number(values: Array | None) -> bool:
    return values is not None and not np.isnan(values).any()

"""Assignments of one number to the elements that a mask selects, as selections between two tensors.

Exporters write ``x[mask] = v`` as the coordinates of the mask's true elements, as many copies of the number, and a
scatter. The number of coordinates depends on data, the result's shape does not.
"""

from __future__ import annotations

import math

from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite
from sartor.onnx_model.operator_types.moving import RESHAPING

# Operators that repeat a value or change its shape.
_REPEATING = RESHAPING - {"Flatten"} | {"Expand", "Tile"}


@node_rewrite("ScatterND")
def select_assigned(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace each ``ScatterND`` of one number at the true elements of a mask by a ``Where``; returns their names."""
    if attributes(node).get("reduction", "none") != "none":
        return None
    data, indices, updates = node.input
    mask, number = _mask(indices, editor), _number(updates, editor)
    if mask is None or number is None:
        return None
    shape, chosen = editor.shape(data), editor.shape(mask)
    if shape is None or chosen is None or not chosen or chosen != shape[: len(chosen)]:
        return None
    emit = Emitter(editor, node)
    if editor.element_type(mask) != TensorProto.BOOL:
        # Other numbers than 0 are true.
        mask = emit("Cast", mask, part="mask", to=TensorProto.BOOL)
    if len(chosen) < len(shape):
        column = emit.constant([*chosen, *[1] * (len(shape) - len(chosen))], "shape")
        mask = emit("Reshape", mask, column, part="wide_mask")
    if editor.shape(number) != ():
        number = emit("Reshape", number, emit.constant([], "scalar"), part="number")
    emit("Where", mask, number, data, output=node.output[0])
    return emit.nodes


def _mask(indices: str, editor: GraphEditor) -> str | None:
    """What the coordinates are those of, one a row, of the elements that are not 0."""
    turned = editor.producer(indices)
    if turned is None or turned.op_type != "Transpose" or list(attributes(turned).get("perm", [1, 0])) != [1, 0]:
        return None
    chosen = editor.producer(turned.input[0])
    return chosen.input[0] if chosen is not None and chosen.op_type == "NonZero" and not chosen.domain else None


def _number(updates: str, editor: GraphEditor) -> str | None:
    """The one number that a value repeats."""
    name = updates
    while True:
        shape = editor.shape(name)
        if shape is not None and math.prod(shape) == 1:
            return name
        node = editor.producer(name)
        if node is None or node.domain or node.op_type not in _REPEATING:
            return None
        name = node.input[0]

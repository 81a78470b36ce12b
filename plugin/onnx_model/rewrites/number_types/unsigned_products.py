"""Widens unsigned operands of ``MatMulInteger`` before they are multiplied.

IREE's importer multiplies operands without zero points as they are. IREE 3.13 then takes unsigned ones for signed where
it optimises most (docs/iree-notes.md).
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.walk import nodes

_OPERATOR = "MatMulInteger"
_COLUMN_AXIS, _AXES_ARE_INPUTS = 1, 13


def with_widened_operands(model: ModelProto) -> ModelProto:
    """A copy in which such products are ``MatMul`` of int32; the model itself if it has no product of integers."""
    if not any(node.op_type == _OPERATOR for node in nodes(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    rewrite_nodes(copy, _widened)
    return copy


def _widened(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != _OPERATOR:
        return None
    operands = [(node.input[index], optional_input(node, index + 2)) for index in range(2)]
    if not any(editor.element_type(name) == TensorProto.UINT8 and not zero for name, zero in operands):
        return None
    emit = Emitter(editor, node)
    # A vector of zero points has one for each row of the left operand, and for each column of the right one.
    left = _centred(emit, *operands[0], "left", is_by_row=True)
    right = _centred(emit, *operands[1], "right", is_by_row=False)
    emit("MatMul", left, right, output=node.output[0])
    return emit.nodes


def _centred(emit: Emitter, values: str, zero: str, part: str, *, is_by_row: bool) -> str:
    """An operand minus its zero points, in 32 bits."""
    words = emit("Cast", values, part=part, to=TensorProto.INT32)
    if not zero:
        return words
    points = emit("Cast", zero, part=f"{part}_zero", to=TensorProto.INT32)
    if is_by_row and len(emit.editor.shape(zero) or ()) == 1:
        points = emit.raised(points, _COLUMN_AXIS, _AXES_ARE_INPUTS)
    return emit("Sub", words, points, part=f"{part}_centre")

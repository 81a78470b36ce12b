"""Widens unsigned operands of ``MatMulInteger`` before they are multiplied.

IREE's importer multiplies operands without zero points as they are. IREE 3.13 then takes unsigned ones for signed where
it optimises most (docs/records/iree-notes.md).
"""

from __future__ import annotations

from functools import partial

from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, editors, opset, optional_input, rewrite_nodes

_OPERATOR = "MatMulInteger"
_COLUMN_AXIS = 1


def with_widened_operands(model: ModelProto) -> ModelProto:
    """A copy in which such products are ``MatMul`` of int32; the model itself if it has no such product."""
    if not any(_is_affected(node, editor) for editor in editors(model.graph) for node in editor.nodes):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    rewrite_nodes(copy, partial(_widened, version=opset(model)))
    return copy


def _operands(node: NodeProto) -> list[tuple[str, str]]:
    """Names of both operands, and of their zero points, which are empty without."""
    return [(node.input[index], optional_input(node, index + 2)) for index in range(2)]


def _is_affected(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node multiplies unsigned integers without a zero point."""
    if node.domain or node.op_type != _OPERATOR:
        return False
    return any(editor.element_type(name) == TensorProto.UINT8 and not zero for name, zero in _operands(node))


def _widened(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if not _is_affected(node, editor):
        return None
    emit, (left, right) = Emitter(editor, node), _operands(node)
    # A vector of zero points has one for each row of the left operand, and for each column of the right one.
    is_by_row = _rank(editor, left[0]) > 1 and _rank(editor, left[1]) == 1
    rows = _centred(emit, *left, "left", version if is_by_row else None)
    emit("MatMul", rows, _centred(emit, *right, "right", None), output=node.output[0])
    return emit.nodes


def _rank(editor: GraphEditor, name: str) -> int:
    return len(editor.shape(name) or ()) if name else 0


def _centred(emit: Emitter, values: str, zero: str, part: str, by_row: int | None) -> str:
    """An operand minus its zero points, in 32 bits.

    Args:
        emit: emits the nodes.
        values: the operand.
        zero: its zero points; empty without.
        part: part of the nodes' names.
        by_row: the version of the operators if there is a zero point for each row; None if not.
    """
    words = emit("Cast", values, part=part, to=TensorProto.INT32)
    if not zero:
        return words
    points = emit("Cast", zero, part=f"{part}_zero", to=TensorProto.INT32)
    if by_row is not None:
        points = emit.raised(points, _COLUMN_AXIS, by_row)
    return emit("Sub", words, points, part=f"{part}_centre")

"""Rows that are written into a matrix, as nodes that the importer passes on: it would write each element by an index.

These nodes are of a domain of their own: ``codegen/subgraphs/written_rows.py`` replaces them before and after IREE's
importer lowers the others.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.rewrites.recurrence.recurrent_calls import DOMAIN

OPERATOR = "WrittenRows"
"""The name of the nodes that stand for writes of rows."""
_MATRIX = 2
# Others have no builtin type of the same bits.
_KINDS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64})


def with_written_rows(model: ModelProto) -> ModelProto:
    """A copy in which each ``ScatterND`` of rows into a matrix is a node that stands for it; the model itself if it has
    none."""
    editor = GraphEditor(model.graph)
    if not any(_is_written(node, editor) for node in editor.nodes):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    editor, types = GraphEditor(copy.graph), dict[str, TypeProto]()

    def replaced(node: NodeProto) -> list[NodeProto] | None:
        if not _is_written(node, editor):
            return None
        emit, (matrix, numbers, rows) = Emitter(editor, node), node.input
        if (kind := editor.type(matrix)) is not None:
            types[node.output[0]] = kind
        emit(OPERATOR, matrix, rows, numbers, output=node.output[0], domain=DOMAIN)
        return emit.nodes

    editor.rewrite(replaced)
    described = {value.name for value in (*copy.graph.value_info, *copy.graph.output)}
    copy.graph.value_info.extend(
        ValueInfoProto(name=name, type=kind) for name, kind in types.items() if name not in described
    )
    if all(item.domain != DOMAIN for item in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


def _is_written(node: NodeProto, editor: GraphEditor) -> bool:
    if node.op_type != "ScatterND" or node.domain or attributes(node).get("reduction", "none") != "none":
        return False
    matrix, numbers, rows = (editor.shape(name) or () for name in node.input)
    if len(matrix) != _MATRIX or 0 in matrix or matrix[1] < _MATRIX or editor.element_type(node.input[0]) not in _KINDS:
        return False
    return len(numbers) == _MATRIX and numbers[1] == 1 and rows == (numbers[0], matrix[1]) and 0 not in numbers

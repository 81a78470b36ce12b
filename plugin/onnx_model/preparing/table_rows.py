"""Finds the inputs of a model that are rows of its tables, as tokens are, and how many rows there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, static_shape
from sartor.onnx_model.operator_types.moving import RESHAPING

# Their results have all elements of the operand: what leaves some out may leave out those that are no rows.
_KEEPING = RESHAPING | {"Concat", "Expand", "Transpose"}
_INDICES = (TensorProto.INT32, TensorProto.INT64)
_TABLE_STEPS = RESHAPING | {"Cast", "DequantizeLinear", "Transpose"}
# The operand of the indices, and the attribute of the axis, which is 0 without one.
_READERS = {
    "Gather": "axis",
    "GatherBlockQuantized": "gather_axis",
    "GatherElements": "axis",
    "GatherND": "",
    "ScatterElements": "axis",
    "ScatterND": "",
}


def table_rows(model: ModelProto) -> dict[str, int]:
    """Inputs all of whose elements are rows of constant tables, each with the number of rows of the shortest one.

    Args:
        model: prepared, without nodes that are not computed in every call.
    """
    editor = GraphEditor(model.graph)
    tables = {}
    for value in model.graph.input:
        shape = static_shape(value.type)
        if shape is None or 0 in shape or editor.is_constant(value.name) or not _is_whole(value.name, editor):
            continue
        rows = [*_rows_of(value.name, editor)]
        if rows:
            tables[value.name] = min(rows)
    return tables


def _is_whole(name: str, editor: GraphEditor) -> bool:
    kind = editor.element_type(name)
    return bool(kind) and np.issubdtype(helper.tensor_dtype_to_np_dtype(kind), np.integer)


def _rows_of(name: str, editor: GraphEditor) -> Iterator[int]:
    """The rows of each constant table that all elements of a value index."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        for node in editor.consumers(current):
            if node.op_type in _READERS and len(node.input) > 1 and node.input[1] == current:
                if rows := _table_length(node, editor):
                    yield rows
            elif _keeps(node, current, editor) and node.output[0] not in seen:
                seen.add(node.output[0])
                pending.append(node.output[0])


def _keeps(node: NodeProto, name: str, editor: GraphEditor) -> bool:
    """Whether a node's result has all elements of an operand, as the same numbers."""
    if node.op_type == "Cast":
        return editor.element_type(node.output[0]) in _INDICES
    return node.op_type in _KEEPING and (node.op_type == "Concat" or node.input[0] == name)


def _table_length(node: NodeProto, editor: GraphEditor) -> int:
    """Rows of the table that a node takes some of; 0 if it is not constant."""
    table = editor.shape(node.input[0])
    if not table or not _is_table(node.input[0], editor):
        return 0
    if axis := _READERS[node.op_type]:
        return table[int(attributes(node).get(axis, 0))]
    # An index has numbers for several dimensions, of which each has its own length.
    return max(table)


def _is_table(name: str, editor: GraphEditor) -> bool:
    """Whether a value is made of constants alone."""
    while not editor.is_constant(name):
        node = editor.producer(name)
        if node is None or node.op_type not in _TABLE_STEPS:
            return False
        name = node.input[0]
    return True

"""Rows of several parts of which a number chooses one, and the others are zero: as nodes, and found in them.

By such rows a product multiplies each by one of several weights that lie behind each other.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor

_RANK = 3
# Nodes that leave the parts of rows where they are.
_KEEPING = ("Reshape", "Cast")


def with_chosen_part(emit: Emitter, rows: str, numbers: str, parts: int, sizes: tuple[int, int]) -> str:
    """Rows ``[rows, parts * depth]`` with some ``[rows, depth]`` at the part that a number of each tells.

    Args:
        emit: takes the nodes.
        rows: what is spread.
        numbers: of parts, ``[rows, 1]``.
        parts: how many there are.
        sizes: the number of rows and the depth.
    """
    count, depth = sizes
    is_own = emit("Equal", numbers, emit.constant([*range(parts)], "parts"), part="is_own")
    is_own = emit("Unsqueeze", is_own, emit.constant([-1], "last_axis"), part="column_of_parts")
    column = emit("Reshape", rows, emit.constant([count, 1, depth], "shape"), part="to_spread")
    spread = emit("Where", is_own, column, emit.like(0, emit.node.input[0], "nothing"), part="spread")
    return emit("Reshape", spread, emit.constant([count, parts * depth], "shape"), part="side_by_side")


def parts_of_rows(editor: GraphEditor, name: str) -> int:
    """How many parts rows have of which at most one is not zero; 1 if that is not known."""
    node = editor.producer(name)
    while node is not None and node.op_type in _KEEPING:
        node = editor.producer(node.input[0])
    if node is None or node.op_type != "Where" or not _is_zero(editor, node.input[2]):
        return 1
    condition, shape = editor.producer(node.input[0]), editor.shape(node.output[0])
    while condition is not None and condition.op_type in ("Unsqueeze", "Reshape"):
        condition = editor.producer(condition.input[0])
    whole = editor.shape(name)
    if condition is None or shape is None or whole is None or len(shape) != _RANK:
        return 1
    parts = shape[1]
    is_joined = whole[-1] == parts * shape[2]
    is_column = editor.shape(node.input[0]) == (shape[0], parts, 1)
    return parts if is_joined and is_column and _chooses_one(editor, condition, parts) else 1


def _is_zero(editor: GraphEditor, name: str) -> bool:
    values = editor.constant(name)
    return values is not None and not values.any()


def _chooses_one(editor: GraphEditor, node: NodeProto, parts: int) -> bool:
    """Whether a node tells of so many parts of each row whether they have its number, which at most one has."""
    if node.op_type != "Equal":
        return False
    for one, other in (node.input, reversed(node.input)):
        values, shape = editor.constant(one), editor.shape(other)
        if values is not None and shape is not None and shape[-1:] == (1,):
            return bool(values.size == parts == values.shape[-1] and np.unique(values).size == parts)
    return False

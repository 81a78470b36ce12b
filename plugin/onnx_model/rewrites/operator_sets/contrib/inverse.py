"""Lowers ONNX Runtime's Inverse of small matrices to Gauss-Jordan elimination with partial pivoting.

Rows are not exchanged: each column eliminates by the row that has its largest number among those that have eliminated
none, and the rows of the result are put in order at the end (Golub and Van Loan, Matrix Computations, 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

# A column takes some twelve nodes.
_MAX_ROWS = 16


def _inverse(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise UnsupportedModelError(
            f"{describe_node(node)} inverts an operand of shape {list(shape)}, whose last two sizes differ; "
            "give it square matrices"
        )
    rows = shape[-1]
    if rows > _MAX_ROWS:
        raise UnsupportedModelError(
            f"{describe_node(node)} inverts matrices of {rows} rows, and {_MAX_ROWS} are the most; end the model "
            "before it, or make the inverse an input"
        )
    emit = Emitter(editor, node)
    if 0 in shape:
        emit("Identity", node.input[0], output=node.output[0])
        return emit.nodes
    # ONNX Runtime computes half precision in float32.
    is_half = emit.dtype(node.input[0]) == np.float16
    value = emit("Cast", node.input[0], part="wide", to=TensorProto.FLOAT) if is_half else node.input[0]
    count = math.prod(shape[:-2])
    flat = emit("Reshape", value, emit.constant([count, rows, rows], "batch"), part="batch")
    inverse = _eliminated(emit, flat, count, rows, np.dtype(np.float32) if is_half else emit.dtype(value))
    if is_half:
        inverse = emit("Cast", inverse, part="narrow", to=TensorProto.FLOAT16)
    emit("Reshape", inverse, emit.constant([*shape], "shape"), output=node.output[0])
    return emit.nodes


def _eliminated(emit: Emitter, matrices: str, count: int, rows: int, dtype: np.dtype[Any]) -> str:
    """Emit the nodes that invert matrices [count, rows, rows]; returns the inverses' name."""
    unit = emit("Expand", emit.constant(np.eye(rows), "unit", dtype), emit.constant([count, rows, rows], "batch"))
    work = emit("Concat", matrices, unit, part="work", axis=2)
    numbers = emit.constant(np.arange(rows).reshape(1, rows, 1), "numbers", np.int64)
    zero, least = (emit.constant(value, hint, dtype) for value, hint in ((0, "zero"), (-1, "least")))
    used, pivots = "", list[str]()
    for column in range(rows):
        # Columns that are eliminated are left out.
        sizes = emit.constant([1, 2 * rows - column - 1], "sizes")
        head, rest = emit.many("Split", work, sizes, part="column", outputs=("", ""), axis=2)
        size = emit("Abs", head, part="size")
        size = emit("Where", used, least, size, part="unused") if used else size
        pivots.append(emit("ArgMax", size, part="pivot", axis=1, keepdims=1))
        chosen = emit("Equal", numbers, pivots[-1], part="chosen")
        alone = emit("Where", chosen, work, zero, part="alone")
        total = emit("ReduceSum", alone, emit.constant([1], "axis"), part="row", keepdims=1)
        divisor, row = emit.many("Split", total, sizes, part="divisor", outputs=("", ""), axis=2)
        row = emit("Div", row, divisor, part="scaled")
        others = emit("Sub", rest, emit("Mul", head, row, part="multiple"), part="eliminated")
        work = emit("Where", chosen, row, others, part="work")
        used = emit("Or", used, chosen, part="used") if used else chosen
    order = emit("Concat", *pivots, part="order", axis=1)
    order = emit("Expand", order, emit.constant([count, rows, rows], "batch"), part="order")
    return emit("GatherElements", work, order, part="ordered", axis=1)


INVERSE: Mapping[str, Lowering] = {"Inverse": _inverse}

"""Determinants of small matrices as sums of products."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite

# The number of products is the factorial of this.
_MAX_ROWS = 5


@node_rewrite("Det")
def expand_determinants(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Lower ``Det`` of matrices of up to five rows to Leibniz's formula.

    IREE 3.13 eliminates without exchanging rows, and divides by zero where a pivot is zero.
    """
    shape = editor.shape(node.input[0])
    if shape is None or not 1 <= shape[-1] <= _MAX_ROWS:
        return None
    emit, rows = Emitter(editor, node), shape[-1]
    orders = np.array(list(itertools.permutations(range(rows))))
    signs = np.array([round(np.linalg.det(np.eye(rows)[list(order)])) for order in orders])
    flat = emit("Reshape", node.input[0], emit.constant([*shape[:-2], rows * rows], "flat"), part="flatten")
    product = emit.constant(signs.astype(emit.dtype(node.input[0])), "signs")
    for row in range(rows):
        columns = emit.constant(orders[:, row] + row * rows, "columns")
        factor = emit("Gather", flat, columns, part="factor", axis=-1)
        product = emit("Mul", product, factor, part="product")
    emit("ReduceSum", product, emit.constant([-1], "axis"), output=node.output[0], keepdims=0)
    return emit.nodes

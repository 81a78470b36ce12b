"""Rewrites matrix products with a vector to products of matrices."""

from __future__ import annotations

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite


@node_rewrite("MatMul")
def matmul_vectors(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Unsqueeze a rank-1 operand of ``MatMul`` if the other has rank 3 or more, which IREE 3.13 cannot lower."""
    ranks = [editor.rank(name) for name in node.input]
    if 1 not in ranks or None in ranks or max(rank or 0 for rank in ranks) < 3:
        return None
    emit = Emitter(editor, node)
    vector, axis = (0, -2) if ranks[0] == 1 else (1, -1)
    operands = list(node.input)
    operands[vector] = emit("Unsqueeze", operands[vector], emit.constant([vector], "axis"), part="matrix")
    product = emit("MatMul", *operands)
    emit("Squeeze", product, emit.constant([axis], "dropped"), part="drop", output=node.output[0])
    return emit.nodes

"""Lowers LpNormalization so that it never divides by zero."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes


def guarded_norm(model: ModelProto) -> tuple[str, ...]:
    """Lower ``LpNormalization`` to ``x / max(|x|, smallest)``, which keeps zero vectors; IREE 3.13 divides 0 by 0."""
    return rewrite_nodes(model, _lowered)


def _lowered(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "LpNormalization":
        return None
    emit, found, source = Emitter(editor, node), attributes(node), node.input[0]
    axes = emit.constant([found.get("axis", -1)], "axes")
    size = emit("Abs", source, part="size") if found.get("p", 2) == 1 else emit("Mul", source, source, part="square")
    norm = emit("ReduceSum", size, axes, part="sum", keepdims=1)
    if found.get("p", 2) == 2:
        norm = emit("Sqrt", norm, part="norm")
    smallest = emit.like(float(np.finfo(emit.dtype(source)).tiny), source, "smallest")
    emit("Div", source, emit("Max", norm, smallest, part="guard"), output=node.output[0])
    return emit.nodes

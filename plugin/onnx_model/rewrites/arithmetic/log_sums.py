"""Keeps logarithms of sums of exponentials finite."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes
from sartor.onnx_model.rewrites.arithmetic.unit_reductions import reduced_axes

_TYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}


def finite_log_sums(model: ModelProto) -> tuple[str, ...]:
    """Subtract the largest value before ``ReduceLogSumExp`` takes exponentials; returns the nodes' names.

    IREE 3.13 takes them of the values as they are, which gives infinity above 88 in float32. The largest value is
    limited to finite ones, as infinity minus itself is no number.
    """
    return rewrite_nodes(model, _written)


def _written(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "ReduceLogSumExp" or editor.element_type(node.input[0]) not in _TYPES:
        return None
    before, after = editor.shape(node.input[0]), editor.shape(node.output[0])
    if before is None or after is None or 0 in before or reduced_axes(node, editor, len(before)) is None:
        return None
    emit, value, axes = Emitter(editor, node), node.input[0], node.input[1:]
    given = {"axes": attributes(node).get("axes"), "keepdims": 1}
    limits = np.finfo(_TYPES[editor.element_type(value)])
    largest = emit("ReduceMax", value, *axes, part="largest", **given)
    largest = emit("Max", largest, emit.constant(float(limits.min), "least", limits.dtype), part="above")
    largest = emit("Min", largest, emit.constant(float(limits.max), "most", limits.dtype), part="below")
    powers = emit("Exp", emit("Sub", value, largest, part="difference"), part="exp")
    total = emit("Add", emit("ReduceLogSum", powers, *axes, **given), largest, part="add")
    emit("Reshape", total, emit.constant(list(after), "shape"), part="shape", output=node.output[0])
    return emit.nodes

"""Finds outputs of Sigmoid, whose small values ONNX Runtime computes with a large relative error."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.operator_types.moving import RESHAPING
from sartor.runtime.driver.counts import counted_axis

# ONNX Runtime's float32 Sigmoid has an absolute error of up to 1.7e-7 for all values (docs/records/accuracy.md).
SIGMOID_ERROR = 2.0**-22
# Larger values have at least four correct digits.
_SMALL = 2.0**-8
# Operators that move values without computing.
_MOVES = RESHAPING | {"Concat", "Slice", "Split", "Transpose"}


def sigmoid_outputs(model: ModelProto) -> tuple[bool, ...]:
    """For each output but counts: whether a Sigmoid computed some of its elements, then operators only moved them.

    Args:
        model: the original or the prepared one.
    """
    editor = GraphEditor(model.graph)
    return tuple(
        output.type.tensor_type.elem_type == TensorProto.FLOAT and _has_sigmoid(output.name, editor)
        for output in model.graph.output
        if counted_axis(output.name) is None
    )


def refined(reference: Array, exact: Array) -> Array:
    """The reference, with small values replaced by more exact ones that differ by no more than its Sigmoid's error.

    Args:
        reference: computed by ONNX Runtime.
        exact: the same output of a model whose Sigmoid has a small relative error.
    """
    if reference.shape != exact.shape:
        return reference
    known = (np.abs(reference) < _SMALL) & (np.abs(reference - exact) <= SIGMOID_ERROR)
    return np.where(known, exact, reference).astype(reference.dtype)


def _has_sigmoid(name: str, editor: GraphEditor) -> bool:
    pending, seen = [name], {name}
    while pending:
        node = editor.producer(pending.pop())
        if node is None or node.domain:
            continue
        if node.op_type == "Sigmoid":
            return True
        if node.op_type in _MOVES:
            sources = set(node.input) if node.op_type == "Concat" else {node.input[0]}
            pending.extend(sources - seen)
            seen |= sources
    return False

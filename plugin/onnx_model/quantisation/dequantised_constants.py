"""Dequantised constants as float constants, from which packing computes the same integers again."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input


def fold_dequantised(editor: GraphEditor) -> None:
    """Replace dequantised constants by float constants."""
    editor.rewrite(lambda node: _folded(node, editor))


def _folded(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace a dequantised constant by a float constant."""
    values = editor.constant(node.input[0]) if node.op_type == "DequantizeLinear" else None
    scale = editor.constant(node.input[1]) if values is not None else None
    zero = editor.constant(node.input[2]) if optional_input(node, 2) else np.zeros((), np.int8)
    settings = attributes(node)
    if (
        values is None
        or scale is None
        or zero is None
        or settings.get("block_size")
        or editor.is_output(node.output[0])
    ):
        return None
    scale, zero = (_aligned(numbers, values.ndim, settings.get("axis", 1)) for numbers in (scale, zero))
    # The difference is exact, so the product is rounded once, as in a computation in the scale's type.
    real = (values.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)
    editor.set_constant(node.output[0], real.astype(scale.dtype))
    return []


def _aligned(numbers: Array, rank: int, axis: int) -> Array:
    """Reshape one number, or one for each index of ``axis``, to broadcast with a tensor of ``rank`` dimensions."""
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape([-1 if index == axis % rank else 1 for index in range(rank)])

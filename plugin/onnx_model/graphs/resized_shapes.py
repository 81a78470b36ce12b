"""Sizes that Resize and Upsample by factors give, as runtimes compute them, which ONNX's own inference does not.

PyTorch, ONNX Runtime and OpenVINO multiply the size and the factor in f32 and drop the fraction, so that 20 rows by 0.7
are 14. ONNX's inference multiplies the f32 factor in a wider type, and finds 13.
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.limits import MAX_DIMENSION

_FACTORS = {"Resize": (2, 1), "Upsample": (1, 1)}
"""Operators, with the operand of factors: of Resize since opset 11 the third, before it the second."""


def has_resizes(graph: GraphProto) -> bool:
    """Whether a graph has nodes whose shape may be inferred another way; bodies are not searched."""
    return any(node.op_type in _FACTORS and not node.domain for node in graph.node)


def shape_in_f32(node: NodeProto, editor: GraphEditor) -> tuple[int, ...] | None:
    """The shape of a node's result where ONNX's inference finds another one; None elsewhere, or if it is not known."""
    if node.domain or node.op_type not in _FACTORS or optional_input(node, 3):
        return None
    shape, factors = editor.shape(node.input[0]), _factors(node, editor)
    if shape is None or factors is None:
        return None
    axes = attributes(node).get("axes", list(range(len(shape))))
    if len(axes) != factors.size or not np.isfinite(factors).all() or (factors <= 0).any():
        return None
    sizes, wide = list(shape), list(shape)
    for axis, factor in zip(axes, factors.astype(np.float32).ravel(), strict=True):
        wide[axis] = int(float(factor) * shape[axis])
        sizes[axis] = int(factor * np.float32(shape[axis]))
    return tuple(sizes) if sizes != wide and max(sizes) <= MAX_DIMENSION else None


def _factors(node: NodeProto, editor: GraphEditor) -> Array | None:
    if "scales" in attributes(node):
        return np.asarray(attributes(node)["scales"], np.float32)
    second = len(node.input) == 2
    name = optional_input(node, _FACTORS[node.op_type][1 if second else 0])
    factors = editor.constant(name)
    return factors if factors is not None and factors.size else None


def stand_in_for_resized(graph: GraphProto, inferred: GraphProto) -> dict[int, NodeProto]:
    """Write nodes whose shape inference finds another way as nodes that have the right one, in place.

    Args:
        graph: what inference is run on.
        inferred: what it found.

    Returns:
        The replaced nodes by their index. Run inference again if there are any: others may read their results.
    """
    editor, replaced = GraphEditor(inferred), dict[int, NodeProto]()
    for index, node in enumerate(graph.node):
        shape = shape_in_f32(node, editor)
        if shape is not None:
            replaced[index] = NodeProto.FromString(node.SerializeToString())
            sizes = editor.fresh("resized")
            graph.initializer.append(numpy_helper.from_array(np.asarray(shape, np.int64), sizes))
            graph.node[index].CopyFrom(helper.make_node("Reshape", [node.input[0], sizes], node.output[:1], node.name))
    return replaced

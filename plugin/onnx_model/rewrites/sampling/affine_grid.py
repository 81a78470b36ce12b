"""AffineGrid as a product of constant positions and the matrices."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite
from sartor.onnx_model.graphs.walk import describe_node


@node_rewrite("AffineGrid")
def multiply_affine_grid(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write AffineGrid for a known size as a MatMul (ONNX operator page of AffineGrid, version 20).

    ONNX's function body of it squeezes a batch of one away, and then splits it.

    Raises:
        UnsupportedModelError: a size is not constant; the message names the node.
    """
    size = editor.constant(node.input[1])
    if size is None:
        raise UnsupportedModelError(f"{describe_node(node)} computes its size; a constant was expected")
    lengths = [int(length) for length in size[2:]]
    corners = bool(attributes(node).get("align_corners", 0))
    emit = Emitter(editor, node)
    positions = _positions(lengths, corners).astype(emit.dtype(node.input[0]))
    turned = emit("Transpose", node.input[0], part="turn", perm=[0, 2, 1])
    grid = emit("MatMul", emit.constant(positions[None], "positions"), turned)
    shape = emit.constant([int(size[0]), *lengths, len(lengths)], "shape")
    emit("Reshape", grid, shape, part="shape", output=node.output[0])
    return emit.nodes


def _positions(lengths: list[int], corners: bool) -> Array:
    """[points, dimensions + 1]: where each point is, the last dimension first, and a one.

    A single point between corners is at the second, as in ONNX Runtime; ONNX's function body has the first.
    """
    axes = [
        np.linspace(1.0, -1.0, length)[::-1] if corners else (2.0 * np.arange(length) + 1.0) / length - 1.0
        for length in lengths
    ]
    places = [array.ravel() for array in np.meshgrid(*axes, indexing="ij")]
    return np.stack([*reversed(places), np.ones_like(places[0])], 1)

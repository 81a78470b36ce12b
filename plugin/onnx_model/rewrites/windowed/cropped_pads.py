"""Cuts off what negative pads remove, so that pads only add."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, optional_input, rewrite_nodes


def crop_pads(model: ModelProto) -> tuple[str, ...]:
    """Split pads of which some are negative into a slice and a pad; returns the names of the replaced nodes.

    IREE 3.13 inserts the operand at a negative offset, and rejects that: "expected offsets to be non-negative".
    """
    return rewrite_nodes(model, _cropped)


def _cropped(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "Pad":
        return None
    shape, pads = editor.shape(node.input[0]), editor.constant(optional_input(node, 1))
    axes = editor.constant(optional_input(node, 3)) if optional_input(node, 3) else None
    if shape is None or pads is None or (axes is None and optional_input(node, 3)) or not (pads < 0).any():
        return None
    listed = np.arange(len(shape)) if axes is None else axes % len(shape)
    sizes = np.array(shape)[listed]
    low, high = np.split(pads, 2)
    emit = Emitter(editor, node)
    bounds = (np.maximum(-low, 0), sizes - np.maximum(-high, 0), listed)
    names = [emit.constant(each, hint) for each, hint in zip(bounds, ("starts", "ends", "axes"), strict=True)]
    sliced = emit("Slice", node.input[0], *names, part="crop")
    emit.copy([sliced, emit.constant(np.maximum(pads, 0), "pads"), *node.input[2:]], output=node.output[0])
    return emit.nodes

"""Cuts off what negative pads remove, so that pads only add; gives pads axes of 64 bits."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.walk import describe_node


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
    if shape is None or pads is None or (axes is None and optional_input(node, 3)):
        return None
    if not (pads < 0).any():
        return None if axes is None or axes.dtype == np.int64 else _with_long_axes(node, editor, axes)
    listed = np.arange(len(shape)) if axes is None else axes.astype(np.int64) % len(shape)
    sizes = np.array(shape)[listed]
    low, high = np.split(pads, 2)
    starts, ends = np.maximum(-low, 0), sizes - np.maximum(-high, 0)
    if (starts > ends).any():
        raise UnsupportedModelError(f"{describe_node(node)} cuts off more than its input of shape {list(shape)} has")
    emit = Emitter(editor, node)
    bounds = (starts, ends, listed)
    names = [emit.constant(each, hint) for each, hint in zip(bounds, ("starts", "ends", "axes"), strict=True)]
    sliced = emit("Slice", node.input[0], *names, part="crop")
    given = [] if axes is None else [names[2]]
    inputs = [sliced, emit.constant(np.maximum(pads, 0), "pads"), *node.input[2:3], *given]
    emit.copy(inputs, output=node.output[0])
    return emit.nodes


def _with_long_axes(node: NodeProto, editor: GraphEditor, axes: Array) -> list[NodeProto]:
    """Shape inference of ONNX 1.23 reads no axes of 32 bits."""
    emit = Emitter(editor, node)
    emit.copy([*node.input[:3], emit.constant(axes.astype(np.int64), "axes")], output=node.output[0])
    return emit.nodes

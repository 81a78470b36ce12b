"""Resize with aligned corners as ONNX defines it where it differs from ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes


def fractional_corners(model: ModelProto) -> tuple[str, ...]:
    """Write the coordinates out where the scale times the size is no integer; returns the names of these nodes.

    The last position is then outside the result, at that fraction (ONNX operator page of Resize, version 19). In ONNX
    Runtime it is the result's last element. Models are compiled to compute what ONNX Runtime does, except where ONNX's
    own tests are run. ``tf_crop_and_resize`` of a part of the input has the same coordinates in both.
    """
    infer_shapes(model)
    return rewrite_nodes(model, _written)


def _written(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    settings = attributes(node) if node.op_type == "Resize" else {}
    if settings.get("coordinate_transformation_mode") != "align_corners" or settings.get("antialias"):
        return None
    shape, scales = editor.shape(node.input[0]), editor.constant(optional_input(node, 2))
    if shape is None or scales is None or not scales.size:
        return None
    sizes = [shape[axis] for axis in settings.get("axes", range(len(shape)))]
    if all((size * scale).is_integer() for size, scale in zip(sizes, scales.tolist(), strict=True)):
        return None
    ends = [_end(size, scale) for size, scale in zip(sizes, scales.tolist(), strict=True)]
    emit = Emitter(editor, node)
    part = emit.constant(np.array([0.0] * len(ends) + ends, np.float32), "part")
    emit.copy([node.input[0], part, node.input[2]], node.output[0])
    for attribute in emit.nodes[0].attribute:
        if attribute.name == "coordinate_transformation_mode":
            attribute.s = b"tf_crop_and_resize"
    return emit.nodes


def _end(size: int, scale: float) -> float:
    """Where the last element of the result lies, as a part of the way from the first to the last of the input."""
    scaled = size * scale
    target = math.floor(scaled)
    return (target - 1) / (scaled - 1) if target > 1 else 0.0

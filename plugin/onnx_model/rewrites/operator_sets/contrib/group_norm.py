"""Lowers ONNX Runtime's group normalisation (Wu and He 2018), as diffusion models contain it, to reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.number_types.quantized import Lowering


def _group_norm(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``GroupNorm(x, gamma, beta)`` of images whose channels are last unless said otherwise, with Swish if asked."""
    emit = Emitter(editor, node)
    return emit.nodes if _normalise(emit, node.input[0], node.output[0]) else None


def _skip_group_norm(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``SkipGroupNorm(x, gamma, beta, skip, bias)``: ``skip`` is an image, or one value per image and channel."""
    shape, skipped = editor.shape(node.input[0]), editor.shape(node.input[3])
    if shape is None or skipped is None:
        return None
    emit, skip, bias = Emitter(editor, node), node.input[3], optional_input(node, 4)
    if len(skipped) == 2:
        skip = emit("Reshape", skip, emit.constant([skipped[0], 1, 1, skipped[1]], "skip_shape"), part="skip_image")
    total = node.output[1] if len(node.output) > 1 else ""
    value = emit("Add", node.input[0], skip, part="skip", output="" if bias else total)
    if bias:
        value = emit("Add", value, bias, part="bias", output=total)
    return emit.nodes if _normalise(emit, value, node.output[0]) else None


def _normalise(emit: Emitter, value: str, output: str) -> bool:
    """Emit the normalisation of an image of the shape of the node's first input, in f32; False if that is not known."""
    settings, shape = attributes(emit.node), emit.editor.shape(emit.node.input[0])
    if shape is None:
        return False
    last, groups = bool(settings.get("channels_last", 1)), settings["groups"]
    if last:
        value = emit("Transpose", value, part="to_nchw", perm=[0, 3, 1, 2])
    value = _widened(emit, value, "widen")
    image = [shape[0], shape[-1], *shape[1:-1]] if last else list(shape)
    size = math.prod(image[1:]) // groups
    rows = emit("Reshape", value, emit.constant([image[0], groups, size], "rows"), part="rows")
    centred = emit("Sub", rows, _mean(emit, rows, "mean", size), part="centre")
    square = emit("Mul", centred, centred, part="square")
    variance = _mean(emit, square, "variance", size)
    epsilon = emit.constant(settings.get("epsilon", 1e-5), "epsilon", np.float32)
    deviation = emit("Sqrt", emit("Add", variance, epsilon, part="epsilon"), part="deviation")
    normal = emit("Div", centred, deviation)
    normal = emit("Reshape", normal, emit.constant(image, "image"), part="image")
    channels = emit.constant([image[1], 1, 1], "channels")
    gamma, beta = (
        emit("Reshape", _widened(emit, name, "parameter"), channels, part="per_channel")
        for name in emit.node.input[1:3]
    )
    result = emit("Add", emit("Mul", normal, gamma, part="scale"), beta, part="shift")
    if settings["activation"]:
        result = emit("Mul", result, emit("Sigmoid", result, part="gate"), part="swish")
    kind = emit.editor.element_type(emit.node.input[0])
    if kind != TensorProto.FLOAT:
        result = emit("Cast", result, part="narrow", to=kind)
    if last:
        emit("Transpose", result, part="to_nhwc", output=output, perm=[0, 2, 3, 1])
    else:
        emit("Identity", result, part="result", output=output)
    return True


def _widened(emit: Emitter, value: str, part: str) -> str:
    """The value in f32: sums of squares exceed f16, and exporters in f16 leave parameters in f32."""
    is_wide = emit.editor.element_type(value) == TensorProto.FLOAT
    return value if is_wide else emit("Cast", value, part=part, to=TensorProto.FLOAT)


def _mean(emit: Emitter, rows: str, part: str, count: int) -> str:
    """ReduceSum takes its axes as an input in every opset from 13 on, ReduceMean only from 18."""
    total = emit("ReduceSum", rows, emit.constant([2], "axes"), part=f"{part}_sum", keepdims=1)
    return emit("Div", total, emit.constant(float(count), "count", np.float32), part=part)


GROUP_NORM: Mapping[str, Lowering] = {"GroupNorm": _group_norm, "SkipGroupNorm": _skip_group_norm}

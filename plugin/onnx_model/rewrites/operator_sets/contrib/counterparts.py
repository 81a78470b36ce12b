"""Lowers ONNX Runtime's operators that have a counterpart in the standard, under another name or in another layout.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.arithmetic.activations import emit_tanh_gelu
from sartor.onnx_model.rewrites.number_types.quantized import Lowering


def _renamed(operator: str) -> Lowering:
    """The lowering to a standard operator that differs in its name at most."""

    def lower(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
        emit = Emitter(editor, node)
        emit(operator, *node.input, output=node.output[0], **attributes(node))
        return emit.nodes

    return lower


def _gather_nd(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The indices may have 32 bits too."""
    emit, indices = Emitter(editor, node), node.input[1]
    if emit.dtype(indices) != np.int64:
        indices = emit("Cast", indices, part="indices", to=TensorProto.INT64)
    emit("GatherND", node.input[0], indices, output=node.output[0], **attributes(node))
    return emit.nodes


def _range(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The step may be left out."""
    emit = Emitter(editor, node)
    step = optional_input(node, 2) or emit.like(1, node.input[0], "step")
    emit("Range", *node.input[:2], step, output=node.output[0])
    return emit.nodes


def _identity(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    emit("Identity", node.input[0], output=node.output[0])
    return emit.nodes


def _pad(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The pads may also be a matrix of one row."""
    emit, operands = Emitter(editor, node), list(node.input)
    if editor.rank(node.input[1]) != 1:
        operands[1] = emit("Reshape", operands[1], emit.constant([-1], "row"), part="pads")
    emit("Pad", *operands, output=node.output[0], **attributes(node))
    return emit.nodes


def _expand_dims(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The axis is a scalar or a vector of one element."""
    axis = editor.constant(node.input[1])
    if axis is None or axis.size != 1:
        raise UnsupportedModelError(f"{describe_node(node)} has an axis that is not a constant of one element")
    emit = Emitter(editor, node)
    emit("Unsqueeze", node.input[0], emit.constant([int(axis.item())], "axes"), output=node.output[0])
    return emit.nodes


def _embedding(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The padding index and the scale concern gradients only."""
    emit = Emitter(editor, node)
    emit("Gather", node.input[0], node.input[1], output=node.output[0], axis=0)
    return emit.nodes


def _unfold(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Windows of ``size`` elements, ``step`` apart, along ``dim``; the elements of a window become the last axis."""
    shape, settings = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        return None
    axis, size, step = settings.get("dim", -1) % len(shape), settings["size"], settings.get("step", 1)
    if not 0 < size <= shape[axis]:
        raise UnsupportedModelError(
            f"{describe_node(node)} takes windows of {size} elements of a dimension of {shape[axis]}; export it again"
        )
    count = (shape[axis] - size) // step + 1
    emit = Emitter(editor, node)
    indices = emit.constant(np.arange(count)[:, None] * step + np.arange(size), "indices", np.int64)
    windows = emit("Gather", node.input[0], indices, part="windows", axis=axis)
    order = [index for index in range(len(shape) + 1) if index != axis + 1]
    emit("Transpose", windows, output=node.output[0], perm=[*order, axis + 1])
    return emit.nodes


def _transposed_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    pads = editor.constant(optional_input(node, 2)) if optional_input(node, 2) else np.zeros(0)
    if pads is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} has pads that are not constant; fix them by --bind, or export a ConvTranspose"
        )
    emit, operands = Emitter(editor, node), [node.input[0], node.input[1]]
    if bias := optional_input(node, 3):
        operands.append(bias)
    settings = {**attributes(node), "pads": [int(pad) for pad in pads] or None}
    emit("ConvTranspose", *operands, output=node.output[0], **settings)
    return emit.nodes


def _channels_last(operator: str, *, turns_filter: bool = False) -> Lowering:
    """The lowering of an operator on images [N, H, W, C].

    Args:
        operator: on images [N, C, H, W].
        turns_filter: whether filters are [M, H, W, C] too, as NhwcConv has them, against the text of its schema.
            NhwcFusedConv has them as in the standard.
    """

    def lower(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        rank = editor.rank(node.input[0])
        if rank is None:
            return None
        emit = Emitter(editor, node)
        to_first, to_last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
        operands = [emit("Transpose", node.input[0], part="to_nchw", perm=to_first), *node.input[1:]]
        if turns_filter:
            operands[1] = emit("Transpose", node.input[1], part="filter_to_nchw", perm=to_first)
        if optional_input(node, 3):
            operands[3] = emit("Transpose", node.input[3], part="addend_to_nchw", perm=to_first)
        domain = "" if operator in ("Conv", "MaxPool") else node.domain
        value = emit(operator, *operands, domain=domain, **attributes(node))
        emit("Transpose", value, part="to_nhwc", output=node.output[0], perm=to_last)
        return emit.nodes

    return lower


def _integer_matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """The product of 16-bit integers, with sums in 32 bits."""
    emit = Emitter(editor, node)
    wide = [emit("Cast", name, part="widen", to=TensorProto.INT32) for name in node.input]
    emit("MatMul", *wide, output=node.output[0])
    return emit.nodes


def _matmul_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    emit = Emitter(editor, node)
    value = emit("MatMul", node.input[0], node.input[1], part="product")
    if bias := optional_input(node, 2):
        value = emit("Add", value, bias, part="bias")
    emit_tanh_gelu(emit, value)
    return emit.nodes


def _biased_softmax(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """A softmax over the dimensions from ``axis`` on of ``x + bias``; the bias lacks inner or outer dimensions."""
    shape, settings = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        return None
    axis = settings.get("axis", 1) % len(shape)
    if axis != len(shape) - 1 or not settings.get("is_inner_broadcast", 1):
        raise UnsupportedModelError(
            f"{describe_node(node)} normalises several dimensions, or spreads its bias over outer ones, which is not "
            "supported; save the model without ONNX Runtime's optimisations for a GPU"
        )
    emit = Emitter(editor, node)
    emit("Softmax", emit("Add", node.input[0], node.input[1], part="bias"), output=node.output[0], axis=-1)
    return emit.nodes


def _distances(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """Euclidean distances, or their squares, of the rows of two matrices."""
    metric = attributes(node).get("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedModelError(f"{describe_node(node)} has the metric {metric!r}, which is not known")
    emit, output = Emitter(editor, node), node.output[0]
    left = emit("Unsqueeze", node.input[0], emit.constant([1], "left_axes"), part="left")
    right = emit("Unsqueeze", node.input[1], emit.constant([0], "right_axes"), part="right")
    difference = emit("Sub", left, right, part="difference")
    square = emit("Mul", difference, difference, part="square")
    roots: dict[str, Any] = {"output": "" if metric == "euclidean" else output, "keepdims": 0}
    total = emit("ReduceSum", square, emit.constant([2], "axes"), part="sum", **roots)
    if metric == "euclidean":
        emit("Sqrt", total, output=output)
    return emit.nodes


COUNTERPARTS: Mapping[str, Lowering] = {
    "BiasSoftmax": _biased_softmax,
    "CDist": _distances,
    "ConvTransposeWithDynamicPads": _transposed_conv,
    "ExpandDims": _expand_dims,
    "GatherND": _gather_nd,
    "GemmFastGelu": _matmul_gelu,
    "GridSample": _renamed("GridSample"),
    "MatMulInteger16": _integer_matmul,
    "NhwcConv": _channels_last("Conv", turns_filter=True),
    "NhwcFusedConv": _channels_last("FusedConv"),
    "NhwcMaxPool": _channels_last("MaxPool"),
    "Pad": _pad,
    "Range": _range,
    "SampleOp": _identity,
    "TorchEmbedding": _embedding,
    "Trilu": _renamed("Trilu"),
    "UnfoldTensor": _unfold,
}

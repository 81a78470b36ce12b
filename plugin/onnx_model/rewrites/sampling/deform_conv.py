"""Lowers deformable convolutions to the patches that they read and a product with the weights."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.rewrites.sampling.interpolation import EXACT_IN_FLOAT, Sampler


@node_rewrite("DeformConv")
def gather_deform_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Lower ``DeformConv`` over images: IREE 3.13 has no lowering (Dai et al. 2017, Zhu et al. 2019 for the mask)."""
    shape, weight, offset = (editor.shape(name) for name in node.input[:3])
    if shape is None or weight is None or offset is None or len(shape) != 4:
        return None
    if editor.element_type(node.input[2]) != TensorProto.FLOAT or math.prod(shape[2:]) > EXACT_IN_FLOAT:
        return None
    emit, settings = Emitter(editor, node), attributes(node)
    groups, group = settings.get("offset_group", 1), settings.get("group", 1)
    taps, points = math.prod(weight[2:]), math.prod(offset[2:])
    batch, channels = shape[0] * groups, shape[1] // groups
    pixels = emit("Reshape", node.input[0], emit.constant([batch, channels, -1], "flat"), part="pixels")

    def read(index: str) -> str:
        """[batch * groups, channels, taps * points] of indices without channels."""
        index = emit("Unsqueeze", index, emit.constant([1], "channel"), part="index_align")
        index = emit("Expand", index, emit.constant([batch, channels, taps * points], "every"), part="index_every")
        return emit("GatherElements", pixels, index, part="pixel", axis=2)

    sampler = Sampler(emit, shape[:1:-1], node.input[2], node.input[0], read, 1, zeros=True)
    grid = _positions(settings, weight[2:], offset[2:])
    split = emit.constant([batch, taps, 2, points], "offsets")
    offsets = emit("Reshape", node.input[2], split, part="offsets")
    positions = []
    for axis in (1, 0):
        moved = emit("Gather", offsets, emit.constant(axis, "axis", np.int64), part="offset", axis=2)
        moved = emit("Add", moved, emit.constant(grid[axis], "grid"), part="position")
        positions.append(emit("Reshape", moved, emit.constant([batch, taps * points], "points"), part="points"))
    patches = sampler.total(sampler.linear(positions))
    if mask := optional_input(node, 4):
        mask = emit("Reshape", mask, emit.constant([batch, 1, taps * points], "mask"), part="mask")
        patches = emit("Mul", patches, mask, part="modulate")
    inner = shape[1] // group * taps
    patches = emit("Reshape", patches, emit.constant([shape[0], group, inner, points], "patches"), part="patches")
    kernel = emit("Reshape", node.input[1], emit.constant([group, -1, inner], "kernel"), part="kernel")
    value = emit("MatMul", kernel, patches)
    bias = optional_input(node, 3)
    result = emit.constant([shape[0], weight[0], *offset[2:]], "shape")
    value = emit("Reshape", value, result, part="image", output="" if bias else node.output[0])
    if bias:
        column = emit("Reshape", bias, emit.constant([-1, 1, 1], "column"), part="bias")
        emit("Add", value, column, part="add_bias", output=node.output[0])
    return emit.nodes


def _positions(settings: dict[str, list[int]], kernel: tuple[int, ...], result: tuple[int, ...]) -> list[Array]:
    """For rows, then columns: where each element of the kernel reads for each result, [taps, points]."""
    strides, dilations, pads = (
        settings.get("strides", [1, 1]),
        settings.get("dilations", [1, 1]),
        settings.get("pads", [0] * 4),
    )
    grid = []
    for axis in range(2):
        tap = np.indices(kernel)[axis].reshape(-1, 1) * dilations[axis]
        point = np.indices(result)[axis].reshape(1, -1) * strides[axis]
        grid.append((point + tap - pads[axis]).astype(np.float32))
    return grid

"""Lowers RoiAlign to gathers of the pixels around each sampling point."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset, rewrite_nodes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.sampling.interpolation import EXACT_IN_FLOAT, Sampler


def gather_roi_align(model: ModelProto) -> tuple[str, ...]:
    """Lower ``RoiAlign`` with a given number of samples per bin (ONNX operator page of RoiAlign, version 16).

    IREE 3.13 fails on it.

    Raises:
        UnsupportedModelError: ``sampling_ratio`` is 0, so that the number of samples depends on the regions.
    """
    return rewrite_nodes(model, partial(_lowered, version=opset(model)))


def _lowered(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if node.op_type != "RoiAlign":
        return None
    settings, shape, regions = attributes(node), editor.shape(node.input[0]), editor.shape(node.input[1])
    ratio = settings.get("sampling_ratio", 0)
    if ratio <= 0:
        raise UnsupportedModelError(
            f"{describe_node(node)} takes as many samples as its regions are large, which differs from region to "
            "region; give it a sampling_ratio, such as 2, before exporting"
        )
    if shape is None or regions is None or editor.element_type(node.input[1]) != TensorProto.FLOAT:
        return None
    batch, channels, height, width = shape
    if batch * height * width > EXACT_IN_FLOAT:
        return None
    emit = Emitter(editor, node)
    rows, columns = settings.get("output_height", 1), settings.get("output_width", 1)
    y, outside_y = _positions(emit, 1, rows, height)
    x, outside_x = _positions(emit, 0, columns, width)
    y, outside_y = (_axis(emit, side, 2) for side in (y, outside_y))
    x, outside_x = (_axis(emit, side, 1) for side in (x, outside_x))
    # [channels, batch * height * width]: the images of regions are chosen by the index.
    pixels = emit("Transpose", node.input[0], part="channels_first", perm=[1, 0, 2, 3])
    pixels = emit("Reshape", pixels, emit.constant([channels, -1], "flat"), part="pixels")
    begin = emit("Mul", node.input[2], emit.constant(height * width, "image_size", np.int64), part="image")
    begin = _axis(emit, _axis(emit, begin, 1), 2)

    def read(index: str) -> str:
        """[channels, regions, rows, columns] of indices without channels."""
        return emit("Gather", pixels, emit("Add", index, begin, part="index_in_batch"), part="pixel", axis=1)

    values = Sampler(emit, (width, height), node.input[1], node.input[0], read, 0, zeros=False).linear([x, y])
    if settings.get("mode", "avg") == "max":
        # The largest weighted neighbour, as ONNX's and ONNX Runtime's do, not the largest interpolated value.
        value = reduce(lambda left, right: emit("Max", left, right, part="larger"), values)
    else:
        value = reduce(lambda left, right: emit("Add", left, right, part="sum"), values)
    outside = _axis(emit, emit("Or", outside_y, outside_x, part="outside"), 0)
    value = emit("Where", outside, emit.like(0.0, node.input[0], "zero"), value, part="masked")
    split = [channels, regions[0], rows, ratio, columns, ratio]
    value = emit("Reshape", value, emit.constant(split, "bins"), part="bins")
    pooling = "ReduceMax" if settings.get("mode", "avg") == "max" else "ReduceMean"
    value = emit.reduced(pooling, value, [3, 5], version)
    emit("Transpose", value, part="regions_first", output=node.output[0], perm=[1, 0, 2, 3])
    return emit.nodes


def _positions(emit: Emitter, first: int, bins: int, size: int) -> tuple[str, str]:
    """Sampling positions along one dimension, [regions, bins * samples], inside the image, and which were outside."""
    settings, regions = attributes(emit.node), emit.node.input[1]
    halved = settings.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"

    def number(value: float) -> str:
        return emit.like(value, regions, "number")

    low, high = (
        emit("Gather", regions, emit.constant([index], "corner"), part="corner", axis=1) for index in (first, first + 2)
    )
    low, high = (
        emit("Mul", corner, number(settings.get("spatial_scale", 1.0)), part="scale") for corner in (low, high)
    )
    if halved:
        low, high = (emit("Sub", corner, number(0.5), part="half") for corner in (low, high))
    extent = emit("Sub", high, low, part="extent")
    if not halved:
        extent = emit("Max", extent, number(1.0), part="extent_of_one")
    ratio = settings["sampling_ratio"]
    steps = ((np.arange(bins * ratio) + 0.5) / (bins * ratio)).astype(np.float32)
    position = emit("Mul", extent, emit.constant(steps[None], "steps"), part="distance")
    position = emit("Add", low, position, part="position")
    outside = emit(
        "Or",
        emit("Less", position, number(-1.0), part="before"),
        emit("Greater", position, number(float(size)), part="after"),
        part="outside",
    )
    return emit("Clip", position, number(0.0), number(float(size - 1)), part="inside"), outside


def _axis(emit: Emitter, value: str, axis: int) -> str:
    return emit("Unsqueeze", value, emit.constant([axis], "axis"), part="align")

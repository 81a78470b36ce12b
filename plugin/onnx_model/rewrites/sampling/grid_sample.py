"""Lowers sampling at computed positions to arithmetic on the positions and gathers inside the image."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.sampling.interpolation import EXACT_IN_FLOAT, Sampler

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@node_rewrite("GridSample")
def gather_grid_sample(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Lower ``GridSample`` over images and volumes (ONNX operator page of GridSample).

    IREE 3.13 reads outside the image for positions outside it, rounds positions wrongly for nearest sampling and has
    only one kind of padding. Cubic sampling is of images alone, and moves each of a position's pixels inside, where
    other modes move the position.
    """
    shape, grid, settings = editor.shape(node.input[0]), editor.shape(node.input[1]), attributes(node)
    mode = settings.get("mode", "linear")
    mode = _MODES.get(mode, mode)
    if shape is None or grid is None or len(shape) not in (4, 5):
        return None
    if mode == "cubic" and len(shape) != 4:
        return None
    if editor.element_type(node.input[1]) != TensorProto.FLOAT or math.prod(shape[2:]) > EXACT_IN_FLOAT:
        return None
    emit, points, rank = Emitter(editor, node), math.prod(grid[1:-1]), len(shape) - 2
    image, places, kind = (node.input[0], *[node.input[1]] * 2) if mode == "nearest" else _of_one_type(emit)
    pixels = emit("Reshape", image, emit.constant([*shape[:2], -1], "flat"), part="pixels")
    flat = emit("Reshape", places, emit.constant([grid[0], points, rank], "points"), part="points")

    def read(index: str) -> str:
        """[batch, channels, points] of [batch, points]."""
        index = emit("Unsqueeze", index, emit.constant([1], "channel"), part="index_align")
        index = emit("Expand", index, emit.constant([shape[0], shape[1], points], "every"), part="index_every")
        return emit("GatherElements", pixels, index, part="pixel", axis=2)

    padding = settings.get("padding_mode", "zeros")
    # The last dimension of the grid holds x, then y.
    sampler = Sampler(
        emit, shape[:1:-1], kind, node.input[0] if mode == "nearest" else kind, read, 1, padding == "zeros"
    )
    positions = [_position(sampler, flat, index) for index in range(rank)]
    if mode == "nearest":
        positions = [emit("Round", name, part="round") for name in positions]
    if mode != "cubic":
        positions = [_padded(sampler, name, index, padding) for index, name in enumerate(positions)]
    elif padding == "reflection":
        sampler = replace(sampler, reflected=partial(_reflected, sampler))
    if mode == "nearest":
        value = sampler.pixel(positions)
    else:
        value = sampler.total(sampler.linear(positions) if mode == "linear" else sampler.cubic(positions))
    if image != node.input[0]:
        value = emit("Cast", value, part="narrow", to=editor.element_type(node.input[0]))
    emit("Reshape", value, emit.constant([*shape[:2], *grid[1:-1]], "shape"), output=node.output[0])
    return emit.nodes


def _of_one_type(emit: Emitter) -> tuple[str, str, str]:
    """The image and the grid in the wider of their types, in which pixels are weighted, and a value of that type."""
    image, grid = emit.node.input
    element = emit.editor.element_type(image)
    if element in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        return emit("Cast", image, part="widen", to=TensorProto.FLOAT), grid, grid
    if element == TensorProto.DOUBLE:
        return image, emit("Cast", grid, part="widen", to=TensorProto.DOUBLE), image
    if element not in (TensorProto.FLOAT, TensorProto.UNDEFINED):
        kind = TensorProto.DataType.Name(element).lower()
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} interpolates between values of type {kind}, "
            "whose rounding ONNX does not define; cast to float32 before it"
        )
    return image, grid, grid


def _position(sampler: Sampler, points: str, index: int) -> str:
    """A coordinate converted from [-1, 1] to pixels."""
    emit, size = sampler.emit, sampler.sizes[index]
    raw = emit("Gather", points, emit.constant(index, "axis", "int64"), part="coordinate", axis=2)
    corners = bool(attributes(emit.node).get("align_corners"))
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if corners else (size / 2, (size - 1) / 2)
    position = emit("Mul", raw, sampler.number(scale), part="scale")
    return emit("Add", position, sampler.number(shift), part="shift")


def _padded(sampler: Sampler, position: str, index: int, padding: str) -> str:
    """A position that is moved inside the image if the padding mode requires that."""
    if padding == "reflection":
        position = _reflected(sampler, position, index)
    return position if padding == "zeros" else sampler.clipped(position, sampler.sizes[index])


def _reflected(sampler: Sampler, position: str, index: int) -> str:
    """``width - | |p - low| mod 2 width - width | + low``, from the edges of an image or the middles of its corners."""
    corners = bool(attributes(sampler.emit.node).get("align_corners"))
    low, width = (0.0, sampler.sizes[index] - 1.0) if corners else (-0.5, float(sampler.sizes[index]))
    if not width:
        return position
    emit, number = sampler.emit, sampler.number
    distance = emit("Abs", emit("Sub", position, number(low), part="from_low"), part="distance")
    folded = emit("Mod", distance, number(2 * width), part="fold", fmod=1)
    back = emit("Abs", emit("Sub", folded, number(width), part="from_high"), part="back")
    return emit("Add", emit("Neg", back, part="turn"), number(width + low), part="reflected")

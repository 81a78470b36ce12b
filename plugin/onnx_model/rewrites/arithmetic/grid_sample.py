"""Lowers sampling at computed positions to arithmetic on the positions and gathers inside the image."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes

_LINEAR = ("linear", "bilinear")
# Indices are computed in float32, which holds integers up to this exactly.
_EXACT_IN_FLOAT = 2**24


@dataclass(frozen=True)
class _Axis:
    """Positions along one spatial dimension, in pixels.

    Attributes:
        index: of the coordinate in the grid: 0 is x, 1 is y.
        size: of the dimension, in pixels.
        position: name of the value, [batch, points].
    """

    index: int
    size: int
    position: str


def gather_grid_sample(model: ModelProto) -> tuple[str, ...]:
    """Lower ``GridSample`` over images with linear or nearest sampling (ONNX operator page of GridSample).

    IREE 3.13 reads outside the image for positions outside it, rounds positions wrongly for nearest sampling and has
    only one kind of padding. Cubic sampling and volumes are not lowered.
    """
    return rewrite_nodes(model, _lowered)


def _lowered(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "GridSample":
        return None
    shape, grid = editor.shape(node.input[0]), editor.shape(node.input[1])
    mode = attributes(node).get("mode", "linear")
    if shape is None or grid is None or len(shape) != 4 or mode not in (*_LINEAR, "nearest"):
        return None
    if editor.element_type(node.input[1]) != TensorProto.FLOAT or shape[2] * shape[3] > _EXACT_IN_FLOAT:
        return None
    emit = Emitter(editor, node)
    points = grid[1] * grid[2]
    pixels = emit("Reshape", node.input[0], emit.constant([*shape[:2], -1], "flat"), part="pixels")
    flat = emit("Reshape", node.input[1], emit.constant([grid[0], points, 2], "points"), part="points")
    # The last dimension of the grid holds x, then y.
    axes = [_axis(emit, flat, index, shape[3 - index]) for index in (0, 1)]
    if mode == "nearest":
        near = [_Axis(axis.index, axis.size, emit("Round", axis.position, part="round")) for axis in axes]
        value = _pixel(emit, pixels, near, shape, points)
    else:
        value = _blend(emit, pixels, axes, shape, points)
    target = emit.constant([*shape[:2], *grid[1:3]], "shape")
    emit("Reshape", value, target, output=node.output[0])
    return emit.nodes


def _number(emit: Emitter, value: float) -> str:
    return emit.like(value, emit.node.input[1], "number")


def _axis(emit: Emitter, points: str, index: int, size: int) -> _Axis:
    """Convert a coordinate from [-1, 1] to pixels, and move it inside the image if the padding mode requires that."""
    found = attributes(emit.node)
    corners, padding = bool(found.get("align_corners")), found.get("padding_mode", "zeros")
    raw = emit("Gather", points, emit.constant(index, "axis", "int64"), part="coordinate", axis=2)
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if corners else (size / 2, (size - 1) / 2)
    position = emit("Mul", raw, _number(emit, scale), part="scale")
    position = emit("Add", position, _number(emit, shift), part="shift")
    if padding == "reflection":
        position = _reflected(emit, position, 0.0 if corners else -0.5, float(size - 1 if corners else size))
    if padding != "zeros":
        position = _clipped(emit, position, size)
    return _Axis(index, size, position)


def _clipped(emit: Emitter, position: str, size: int) -> str:
    return emit("Clip", position, _number(emit, 0.0), _number(emit, float(size - 1)), part="inside")


def _reflected(emit: Emitter, position: str, low: float, width: float) -> str:
    """``width - | |p - low| mod 2 width - width | + low``."""
    if not width:
        return position
    distance = emit("Abs", emit("Sub", position, _number(emit, low), part="from_low"), part="distance")
    folded = emit("Mod", distance, _number(emit, 2 * width), part="fold", fmod=1)
    back = emit("Abs", emit("Sub", folded, _number(emit, width), part="from_high"), part="back")
    return emit("Add", emit("Neg", back, part="turn"), _number(emit, width + low), part="reflected")


def _blend(emit: Emitter, pixels: str, axes: list[_Axis], shape: tuple[int, ...], points: int) -> str:
    """Bilinear interpolation: the sum of the four neighbours, weighted by the distances to their opposites."""
    below = [emit("Floor", axis.position, part="floor") for axis in axes]
    above = [emit("Add", name, _number(emit, 1.0), part="above") for name in below]
    weights_above = [emit("Sub", axis.position, name, part="fraction") for axis, name in zip(axes, below, strict=True)]
    weights_below = [emit("Sub", _number(emit, 1.0), name, part="rest") for name in weights_above]
    total = ""
    for x, x_weight in ((below[0], weights_below[0]), (above[0], weights_above[0])):
        for y, y_weight in ((below[1], weights_below[1]), (above[1], weights_above[1])):
            corner = [_Axis(axis.index, axis.size, name) for axis, name in zip(axes, (x, y), strict=True)]
            weight = emit("Mul", x_weight, y_weight, part="weight")
            weight = emit("Unsqueeze", weight, emit.constant([1], "channel"), part="weight_align")
            value = emit("Mul", _pixel(emit, pixels, corner, shape, points), weight, part="weighted")
            total = emit("Add", total, value, part="sum") if total else value
    return total


def _pixel(emit: Emitter, pixels: str, corner: list[_Axis], shape: tuple[int, ...], points: int) -> str:
    """Values [batch, channels, points] at integer positions; zero outside the image."""
    inside = [_clipped(emit, axis.position, axis.size) for axis in corner]
    rows = emit("Mul", inside[1], _number(emit, float(shape[3])), part="row")
    index = emit("Cast", emit("Add", rows, inside[0], part="index"), part="index_number", to=TensorProto.INT64)
    index = emit("Unsqueeze", index, emit.constant([1], "channel"), part="index_align")
    index = emit("Expand", index, emit.constant([shape[0], shape[1], points], "every"), part="index_every")
    value = emit("GatherElements", pixels, index, part="pixel", axis=2)
    if attributes(emit.node).get("padding_mode", "zeros") != "zeros":
        return value
    hits = [emit("Equal", axis.position, name, part="hit") for axis, name in zip(corner, inside, strict=True)]
    hit = emit("Unsqueeze", emit("And", *hits, part="both"), emit.constant([1], "channel"), part="hit_align")
    return emit("Where", hit, value, emit.like(0.0, emit.node.input[0], "zero"), part="masked")

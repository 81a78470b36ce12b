"""Lowers operators that move elements in a fixed pattern to Gather with constant indices."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.walk import describe_node

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_INT64_MAX = 2**63 - 1
# IREE 3.13 repeats the edges of the last three dimensions, where there are at least two.
_MOST_REPEATED = 4


def gather_reversed(model: ModelProto) -> tuple[str, ...]:
    """Lower slices with negative steps, pads that mirror or wrap, and some that repeat edges.

    Returns the names of the replaced nodes.

    IREE 3.13 reads a mirrored border by a reversed index map and fails if the border is not a multiple of its tile
    ("shape's dimension #0 to be greater than or equal to 128, but found 113"). It refuses steps below -1 and hangs on
    wrapped pads.
    """
    if any(_is_mirrored(node) for node in model.graph.node):
        # What negative pads were cropped to has no shape yet.
        infer_shapes(model)
    return rewrite_nodes(model, _lowered)


@node_rewrite("OneHot")
def whole_indices(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Drop the fractions of a ``OneHot``'s indices, as ONNX does.

    IREE 3.13 compares them with whole numbers as they are.
    """
    if editor.element_type(node.input[0]) not in _FLOATS:
        return None
    emit = Emitter(editor, node)
    whole = emit("Cast", node.input[0], part="whole", to=TensorProto.INT64)
    emit.copy([whole, *node.input[1:]], node.output[0])
    return emit.nodes


def _is_mirrored(node: NodeProto) -> bool:
    return node.op_type == "Pad" and _mode(node) in ("reflect", "wrap", "edge")


def _mode(node: NodeProto) -> str:
    return str(attributes(node).get("mode", "constant"))


def _lowered(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type == "Slice":
        return _backward_slice(node, editor)
    if _is_mirrored(node):
        nodes = _mirrored_pad(node, editor)
        if nodes is None and _mode(node) == "wrap":
            raise UnsupportedModelError(
                f"{describe_node(node)} wraps by more than its input has, or by unknown amounts; pad less, or "
                "write it with Tile and Slice"
            )
        return nodes
    if node.op_type == "SpaceToDepth" and attributes(node).get("mode", "DCR") == "CRD":
        return _space_to_depth(node, editor)
    return None


def _space_to_depth(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Blocks become channels, those of one channel side by side; IREE 3.13 orders them otherwise."""
    shape, block = editor.shape(node.input[0]), attributes(node)["blocksize"]
    if shape is None:
        return None
    emit, (batch, channels, height, width) = Emitter(editor, node), shape
    split = [batch, channels, height // block, block, width // block, block]
    value = emit("Reshape", node.input[0], emit.constant(split, "split"), part="split")
    value = emit("Transpose", value, perm=[0, 1, 3, 5, 2, 4])
    joined = emit.constant([batch, channels * block * block, height // block, width // block], "joined")
    emit("Reshape", value, joined, part="join", output=node.output[0])
    return emit.nodes


def _backward_slice(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape = editor.shape(node.input[0])
    operands = [editor.constant(optional_input(node, index)) for index in range(1, 5)]
    starts, ends, axes, steps = operands
    if shape is None or starts is None or ends is None or steps is None or not (steps < 0).any():
        return None
    if axes is None and optional_input(node, 3):
        return None
    axes = np.arange(len(starts)) if axes is None else axes
    emit = Emitter(editor, node)
    value = node.input[0]
    cuts = list(zip(starts.tolist(), ends.tolist(), axes.tolist(), steps.tolist(), strict=True))
    for number, (start, end, axis, step) in enumerate(cuts):
        axis %= len(shape)
        rows = np.arange(shape[axis])[_python_slice(start, end, step, shape[axis])]
        last = number == len(cuts) - 1
        value = emit(
            "Gather",
            value,
            emit.constant(rows, "rows"),
            part="" if last else f"axis{axis}",
            output=node.output[0] if last else "",
            axis=axis,
        )
    return emit.nodes


def _python_slice(start: int, end: int, step: int, size: int) -> slice:
    """ONNX's slice in Python. Both clamp, but in ONNX a backward slice to or from below ``-size`` has the first."""
    if step > 0:
        return slice(start, min(end, _INT64_MAX), step)
    return slice(max(start, -size), None if end < -size else end, step)


def _mirrored_pad(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Gather the borders of one axis after another and concatenate them with the value."""
    shape, pads = editor.shape(node.input[0]), editor.constant(optional_input(node, 1))
    axes = editor.constant(optional_input(node, 3)) if optional_input(node, 3) else None
    if shape is None or pads is None or (axes is None and optional_input(node, 3)):
        return None
    listed = list(range(len(shape))) if axes is None else [int(axis) % len(shape) for axis in axes]
    half = len(listed)
    borders = {axis: (int(pads[index]), int(pads[index + half])) for index, axis in enumerate(listed)}
    padded = {axis: sides for axis, sides in borders.items() if any(sides)}
    mode = _mode(node)
    if not padded and mode == "wrap":
        emit = Emitter(editor, node)
        emit("Identity", node.input[0], output=node.output[0])
        return emit.nodes
    if not padded or any(min(sides) < 0 for sides in padded.values()):
        return None
    if mode == "edge" and len(shape) > 1 and min(padded) > len(shape) - _MOST_REPEATED:
        return None
    if mode != "edge" and any(max(sides) > shape[axis] for axis, sides in padded.items()):
        return None
    emit = Emitter(editor, node)
    value = node.input[0]
    for axis, (low, high) in padded.items():
        rows = _border_rows(shape[axis], low, high, mode)
        parts = [value]
        if low:
            parts.insert(0, emit("Gather", value, emit.constant(rows[:low], "low"), part=f"low{axis}", axis=axis))
        if high:
            parts.append(emit("Gather", value, emit.constant(rows[-high:], "high"), part=f"high{axis}", axis=axis))
        last = axis == list(padded)[-1]
        value = emit(
            "Concat", *parts, part="" if last else f"axis{axis}", output=node.output[0] if last else "", axis=axis
        )
    return emit.nodes


def _border_rows(size: int, low: int, high: int, mode: str) -> Array:
    if mode == "edge":
        return np.pad(np.arange(size), (low, high), mode="edge")
    return np.pad(np.arange(size), (low, high), mode="wrap" if mode == "wrap" else "reflect")


@node_rewrite("GatherElements")
def gather_one_element(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Lower GatherElements by a single index to Gather.

    Over such a gather whose index another node reads too, as the maximum by its ArgMax, IREE 3.13 does not end.
    """
    shape, index = (editor.shape(name) for name in node.input)
    if not shape or index is None or any(size != 1 for size in index):
        return None
    emit, axis = Emitter(editor, node), attributes(node).get("axis", 0) % len(shape)
    value, others = node.input[0], [other for other, size in enumerate(shape) if other != axis and size != 1]
    if others:
        # The index has the place 0 along the other axes.
        bounds = [emit.constant([number] * len(others), part) for number, part in ((0, "starts"), (1, "ends"))]
        value = emit("Slice", value, *bounds, emit.constant(others, "axes"), part="first")
    number = emit("Reshape", node.input[1], emit.constant([1], "vector"), part="index")
    emit("Gather", value, number, axis=axis, output=node.output[0])
    return emit.nodes

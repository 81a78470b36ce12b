"""Operators that move values by positions that are computed, or sum what windows took: what each element reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.graphs.walk import describe_node


@node_rewrite()
def gather_windows(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write them as what each element of the result reads; IREE 3.13 has no lowering for them.

    Must run before indices of poolings are computed in another way.
    """
    rule = _RULES.get(node.op_type)
    return rule(node, editor) if rule else None


def _col2im(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Each pixel is the sum of the window elements that lie on it: gathered by constant indices, zeros where fewer."""
    shape, image, block = editor.shape(node.input[0]), *(editor.constant(name) for name in node.input[1:3])
    if shape is None or image is None or block is None:
        return None
    sizes, kernel = [int(length) for length in image], [int(length) for length in block]
    counts, elements = _blocks(sizes, kernel, attributes(node)), math.prod(kernel)
    if min((*sizes, *kernel, *counts)) < 1 or shape[1] % elements or shape[2] != math.prod(counts):
        raise UnsupportedModelError(
            f"{describe_node(node)} makes an image of {sizes} of {shape[2]} columns of {shape[1]} elements, which are "
            f"not what blocks of {kernel} take of it; export the model again"
        )
    sources = _sources(sizes, kernel, counts, attributes(node))
    emit = Emitter(editor, node)
    channels = shape[1] // elements
    flat = [shape[0], channels, elements * shape[2]]
    value = emit("Reshape", node.input[0], emit.constant(flat, "flat"), part="flatten")
    zero = emit.constant(np.zeros((shape[0], channels, 1), emit.dtype(node.input[0])), "nothing")
    value = emit("Concat", value, zero, part="padded", axis=2)
    value = emit("Gather", value, emit.constant(sources, "sources"), part="read", axis=2)
    value = emit("ReduceSum", value, emit.constant([3], "axis"), keepdims=0)
    result = emit.constant([shape[0], channels, *sizes], "shape")
    emit("Reshape", value, result, part="image", output=node.output[0])
    return emit.nodes


def _blocks(sizes: list[int], kernel: list[int], settings: Mapping[str, list[int]]) -> list[int]:
    """How many blocks there are along each axis of an image."""
    rank = len(sizes)
    dilations, strides = settings.get("dilations", [1] * rank), settings.get("strides", [1] * rank)
    pads = settings.get("pads", [0] * 2 * rank)
    return [
        (sizes[axis] + pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1
        for axis in range(rank)
    ]


def _sources(sizes: list[int], kernel: list[int], counts: list[int], settings: Mapping[str, list[int]]) -> Array:
    """[pixels, most elements on one]: indices of window elements, kernel element by kernel element."""
    rank = len(sizes)
    dilations, strides = settings.get("dilations", [1] * rank), settings.get("strides", [1] * rank)
    pads = settings.get("pads", [0] * 2 * rank)
    grid = np.indices((*kernel, *counts))
    places = [grid[rank + axis] * strides[axis] - pads[axis] + grid[axis] * dilations[axis] for axis in range(rank)]
    inside = np.logical_and.reduce([(place >= 0) & (place < size) for place, size in zip(places, sizes, strict=True)])
    pixels = np.ravel_multi_index([place[inside] for place in places], sizes)
    order = np.argsort(pixels, kind="stable")
    many = np.bincount(pixels, minlength=math.prod(sizes))
    column = np.arange(len(pixels)) - (np.cumsum(many) - many)[pixels[order]]
    nothing = math.prod(kernel) * math.prod(counts)
    found_at = np.full((math.prod(sizes), max(1, many.max(initial=0))), nothing, np.int64)
    found_at[pixels[order], column] = np.flatnonzero(inside)[order]
    return found_at


def _max_unpool(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape = editor.shape(node.input[0])
    larger = editor.constant(node.input[2]) if optional_input(node, 2) else None
    if shape is None or (optional_input(node, 2) and larger is None):
        return None
    settings, rank = attributes(node), len(shape) - 2
    kernel, strides = settings["kernel_shape"], settings.get("strides", [1] * rank)
    pads = settings.get("pads", [0] * 2 * rank)
    spatial = [
        (shape[axis + 2] - 1) * strides[axis] - pads[axis] - pads[axis + rank] + kernel[axis] for axis in range(rank)
    ]
    emit, full = Emitter(editor, node), [*shape[:2], *spatial]
    if larger is not None and _indexed_by_pool(node, editor) == tuple(larger):
        full = [int(size) for size in larger]
    empty = emit.constant(np.zeros(math.prod(full), emit.dtype(node.input[0])), "empty")
    # A position outside would be written outside.
    last, first = emit.constant(math.prod(full) - 1, "last"), emit.constant(0, "first")
    inside = emit("Max", emit("Min", node.input[1], last, part="before_end"), first, part="inside")
    rows = emit("Reshape", inside, emit.constant([-1, 1], "column"), part="rows")
    values = emit("Reshape", node.input[0], emit.constant([-1], "flat"), part="values")
    value = emit("ScatterND", empty, rows, values)
    is_last = larger is None or list(larger) == full
    output = node.output[0] if is_last else ""
    value = emit("Reshape", value, emit.constant(full, "shape"), part="image", output=output)
    if larger is not None and not is_last:
        after = [int(size) - own for size, own in zip(larger, full, strict=True)]
        emit("Pad", value, emit.constant([0] * len(full) + after, "pads"), part="pad", output=node.output[0])
    return emit.nodes


def _indexed_by_pool(node: NodeProto, editor: GraphEditor) -> tuple[int, ...] | None:
    """The shape that indices address if they come from a pooling of the model; others address the inferred one."""
    pool = editor.producer(node.input[1])
    return editor.shape(pool.input[0]) if pool is not None and pool.op_type == "MaxPool" else None


def _tensor_scatter(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Each position of the cache reads the update at its distance from where writing begins, or itself."""
    cache, update = (editor.shape(name) for name in node.input[:2])
    if cache is None or update is None:
        return None
    settings = attributes(node)
    axis = settings.get("axis", -2) % len(cache)
    emit, size, count = Emitter(editor, node), cache[axis], update[axis]
    positions = np.arange(size, dtype=np.int64).reshape([-1 if index == axis else 1 for index in range(len(cache))])
    distance = emit.constant(positions, "positions")
    if begin := optional_input(node, 2):
        column = emit.constant([-1, *[1] * (len(cache) - 1)], "column")
        distance = emit("Sub", distance, emit("Reshape", begin, column, part="begin"), part="distance")
    zero = emit.constant(0, "zero", np.int64)
    if settings.get("mode", "linear") == "circular":
        length = emit.constant(size, "length", np.int64)
        distance = emit("Mod", distance, length, part="around")
    past = emit("Less", distance, emit.constant(count, "count", np.int64), part="before_end")
    inside = emit("And", emit("GreaterOrEqual", distance, zero, part="after_begin"), past, part="inside")
    last = emit.constant(count - 1, "last", np.int64)
    row = emit("Min", emit("Max", distance, zero, part="from_zero"), last, part="row")
    rows = emit("Expand", row, emit.constant(list(cache), "shape"), part="rows")
    written = emit("GatherElements", node.input[1], rows, part="written", axis=axis)
    emit("Where", inside, written, node.input[0], output=node.output[0])
    return emit.nodes


def _reverse_sequence(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Each step reads the one as far from the sequence's end, or itself after it."""
    shape, settings = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        return None
    time, batch = settings.get("time_axis", 0), settings.get("batch_axis", 1)
    emit, rank = Emitter(editor, node), len(shape)
    steps = np.arange(shape[time], dtype=np.int64).reshape([-1 if axis == time else 1 for axis in range(rank)])
    position, one = emit.constant(steps, "positions"), emit.constant(1, "one", np.int64)
    column = emit.constant([-1 if axis == batch else 1 for axis in range(rank)], "column")
    lengths = emit("Reshape", node.input[1], column, part="lengths")
    back = emit("Sub", emit("Sub", lengths, one, part="last"), position, part="back")
    row = emit("Where", emit("Less", position, lengths, part="inside"), back, position, part="row")
    rows = emit("Expand", row, emit.constant(list(shape), "shape"), part="rows")
    emit("GatherElements", node.input[0], rows, output=node.output[0], axis=time)
    return emit.nodes


def _lp_pool(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """The root of a convolution of powers with ones: IREE 3.13 knows neither the operator of opset 17 nor dilations."""
    # Of the input it is not known where padding was written before.
    settings, shape = attributes(node), editor.shape(node.output[0])
    if shape is None or settings.get("ceil_mode"):
        return None
    if settings.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    emit, source, power = Emitter(editor, node), node.input[0], settings.get("p", 2)
    kind, dtype = editor.element_type(source), emit.dtype(source)
    # Powers of what f16 holds exceed it.
    is_half = kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if is_half:
        source, dtype = emit("Cast", source, part="widen", to=TensorProto.FLOAT), np.dtype(np.float32)
    value = emit("Pow", emit("Abs", source, part="size"), emit.constant(power, "power", dtype), part="power")
    ones = emit.constant(np.ones((shape[1], 1, *settings["kernel_shape"]), dtype), "ones")
    names = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
    geometry: dict[str, Any] = {name: settings.get(name) for name in names}
    value = emit("Conv", value, ones, part="sum", group=shape[1], **geometry)
    value = emit("Pow", value, emit.constant(1 / power, "root", dtype), output="" if is_half else node.output[0])
    if is_half:
        emit("Cast", value, part="narrow", output=node.output[0], to=kind)
    return emit.nodes


_RULES: Mapping[str, Callable[[NodeProto, GraphEditor], list[NodeProto] | None]] = {
    "Col2Im": _col2im,
    "LpPool": _lp_pool,
    "MaxUnpool": _max_unpool,
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
}

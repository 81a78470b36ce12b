"""Lowers the Indices output of MaxPool, which IREE numbers differently from ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite
from sartor.onnx_model.rewrites.windowed.windows import Window, window_of


@node_rewrite("MaxPool")
def gather_pool_indices(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Compute ``Indices`` of ``MaxPool`` by gathering the windows; the MaxPool keeps only its first output.

    IREE 3.13 numbers elements within their channel, as PyTorch does. ONNX numbers them within the whole tensor.
    """
    if len(node.output) < 2:
        return None
    window, shape = window_of(node, editor), editor.shape(node.input[0])
    # Values that nothing reads are not described.
    output = editor.shape(node.output[0]) or editor.shape(node.output[1])
    if window is None or shape is None or output is None:
        return None
    by_column = attributes(node).get("storage_order", 0) == 1
    emit = Emitter(editor, _values_only(node))
    emit.copy([node.input[0]], node.output[0])
    if not editor.consumers(node.output[1]) and not editor.is_output(node.output[1]):
        return emit.nodes
    tables = _tables(window, output[2:], by_column)
    if tables is None:
        return None
    elements, numbers = tables
    flat = emit("Reshape", node.input[0], emit.constant([*shape[:2], -1], "flat"), part="flat")
    windows = emit("Gather", flat, emit.constant(elements, "elements"), part="windows", axis=2)
    largest = emit("ArgMax", windows, part="largest", axis=3, keepdims=0)
    rows = np.arange(len(numbers)) * numbers.shape[1]
    slots = emit("Add", largest, emit.constant(rows, "rows"), part="slots")
    within = emit("Gather", emit.constant(numbers.reshape(-1), "numbers"), slots, part="within")
    planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], 1) * math.prod(shape[2:])
    number = emit("Add", within, emit.constant(planes, "planes"), part="number")
    emit("Reshape", number, emit.constant(list(output), "shape"), part="indices", output=node.output[1])
    return emit.nodes


def _values_only(node: NodeProto) -> NodeProto:
    bare = NodeProto()
    bare.CopyFrom(node)
    del bare.output[1:]
    del bare.attribute[:]
    bare.attribute.extend(item for item in node.attribute if item.name != "storage_order")
    return bare


def _tables(window: Window, output: Sequence[int], by_column: bool) -> tuple[Array, Array] | None:
    """Two tables [windows, positions]: the row-major index of each element in its plane, and ONNX's number of it.

    Positions in the padding refer to the window's first element, so the position of the first maximum does not change.
    None if a window lies in the padding only.
    """
    rank = len(window.sizes)
    inside = np.ones((1,) * (2 * rank), np.bool_)
    elements = numbers = np.zeros((1,) * (2 * rank), np.int64)
    for axis, size in enumerate(window.sizes):
        starts = np.arange(output[axis]) * window.strides[axis] - window.pads[axis][0]
        places = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        places = np.expand_dims(places, [index for index in range(2 * rank) if index not in (axis, axis + rank)])
        inside = inside & (places >= 0) & (places < size)
        row_major = math.prod(window.sizes[axis + 1 :])
        elements = elements + places * row_major
        numbers = numbers + places * (math.prod(window.sizes[:axis]) if by_column else row_major)
    flat = (math.prod(output), math.prod(window.kernel))
    inside = inside.reshape(flat)
    if not inside.any(axis=1).all():
        return None
    slots = np.where(inside, np.arange(flat[1]), inside.argmax(axis=1)[:, None])
    return _read(elements, slots), _read(numbers, slots)


def _read(table: Array, slots: Array) -> Array:
    return np.take_along_axis(table.reshape(slots.shape), slots, axis=1)

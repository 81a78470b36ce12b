"""Makes pads such that IREE compiles: they only add, have axes of 64 bits, and are not padded again."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.graphs.walk import describe_node

_ZERO_PADDED = frozenset({"AveragePool", "Conv", "LpPool"})
_WINDOWED = _ZERO_PADDED | {"ConvInteger", "MaxPool", "QLinearConv"}


@node_rewrite("Pad")
def crop_pads(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Split pads of which some are negative into a slice and a pad.

    IREE 3.13 inserts the operand at a negative offset, and rejects that: "expected offsets to be non-negative".
    """
    shape, pads = editor.shape(node.input[0]), editor.constant(optional_input(node, 1))
    axes = editor.constant(optional_input(node, 3)) if optional_input(node, 3) else None
    if shape is None or pads is None or (axes is None and optional_input(node, 3)):
        return None
    if not (pads < 0).any():
        return None if axes is None or axes.dtype == np.int64 else _with_long_axes(node, editor, axes)
    listed = np.arange(len(shape)) if axes is None else axes.astype(np.int64) % len(shape)
    sizes = np.array(shape)[listed]
    low, high = np.split(pads, 2)
    starts, ends = np.maximum(-low, 0), sizes - np.maximum(-high, 0)
    if (starts > ends).any():
        raise UnsupportedModelError(f"{describe_node(node)} cuts off more than its input of shape {list(shape)} has")
    emit = Emitter(editor, node)
    bounds = (starts, ends, listed)
    names = [emit.constant(bound, hint) for bound, hint in zip(bounds, ("starts", "ends", "axes"), strict=True)]
    sliced = emit("Slice", node.input[0], *names, part="crop")
    given = [] if axes is None else [names[2]]
    inputs = [sliced, emit.constant(np.maximum(pads, 0), "pads"), *node.input[2:3], *given]
    emit.copy(inputs, output=node.output[0])
    return emit.nodes


def _with_long_axes(node: NodeProto, editor: GraphEditor, axes: Array) -> list[NodeProto]:
    """Shape inference of ONNX 1.23 reads no axes of 32 bits."""
    emit = Emitter(editor, node)
    emit.copy([*node.input[:3], emit.constant(axes.astype(np.int64), "axes")], output=node.output[0])
    return emit.nodes


@node_rewrite("Pad")
def concatenate_pads(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write a pad of what is computed as concatenations if another value is padded around it.

    IREE 3.13 puts all three into one dispatch without workgroups, and rejects that: "write affecting operations on
    global resources are restricted to workgroup distributed contexts".
    """
    if attributes(node).get("mode", "constant") != "constant":
        return None
    shape, pads, value = editor.shape(node.input[0]), _pads(node, editor), _value(node, editor)
    if shape is None or pads is None or value is None or editor.producer(node.input[0]) is None:
        return None
    if not any(_pads_otherwise(reader, value, editor) for reader in editor.consumers(node.output[0])):
        return None
    emit, whole, current = Emitter(editor, node), list(shape), node.input[0]
    padded = [axis for axis, sides in enumerate(pads) if any(sides)]
    for axis in padded:
        parts = [_filled(emit, whole, axis, size, value) if size else "" for size in pads[axis]]
        names = [name for name in (parts[0], current, parts[1]) if name]
        output = node.output[0] if axis == padded[-1] else ""
        current = emit("Concat", *names, part="" if output else "pad", output=output, axis=axis)
        whole[axis] += sum(pads[axis])
    return emit.nodes or None


def _filled(emit: Emitter, whole: list[int], axis: int, size: int, value: Any) -> str:
    shape = [size if index == axis else length for index, length in enumerate(whole)]
    number = emit.constant(np.asarray(value, emit.dtype(emit.node.input[0])), "number")
    return emit("Expand", number, emit.constant(shape, "sizes"), part="filled")


def _pads(node: NodeProto, editor: GraphEditor) -> list[tuple[int, int]] | None:
    """How much a Pad adds before and after each axis; None if that is computed, or less than nothing."""
    rank, pads = editor.rank(node.input[0]), editor.constant(optional_input(node, 1))
    name = optional_input(node, 3)
    axes = editor.constant(name) if name else np.arange(rank or 0)
    if rank is None or pads is None or axes is None or (pads < 0).any():
        return None
    sides = [(0, 0)] * rank
    for axis, low, high in zip(axes, *np.split(pads, 2), strict=True):
        sides[int(axis)] = (int(low), int(high))
    return sides


def _value(node: NodeProto, editor: GraphEditor) -> Any:
    """What a Pad adds, in its own type; None if that is computed."""
    name = optional_input(node, 2)
    known = editor.constant(name) if name else np.zeros(1)
    return None if known is None or known.size != 1 else known.flat[0]


def _pads_otherwise(reader: NodeProto, value: Any, editor: GraphEditor) -> bool:
    """Whether a reader pads what it reads by another value, as pooling does by the lowest."""
    if reader.op_type == "Pad":
        if attributes(reader).get("mode", "constant") != "constant":
            return False
        pads = _pads(reader, editor)
        return _value(reader, editor) != value and (pads is None or any(map(any, pads)))
    own = -np.inf if reader.op_type == "MaxPool" else 0 if reader.op_type in _ZERO_PADDED else None
    return reader.op_type in _WINDOWED and any(attributes(reader).get("pads", ())) and value != own

"""Cuts what is gathered from later such that its innermost elements stay neighbours in memory."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.operator_types.moving import RESHAPING

_GATHERING = frozenset({"Gather", "GatherElements", "GatherND", "GridSample", "Resize"})


@node_rewrite()
def gather_parts(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Cut every n-th element of the last axis, or a single one, by a gather if others read the part by a gather.

    IREE 3.13 puts a slice into the dispatch that reads it, and does not lower ``vector.gather`` from memory whose
    innermost stride is not 1: "LLVM Translation failed for operation: builtin.unrealized_conversion_cast". What is
    gathered is a dispatch of its own.
    """
    if node.op_type == "Slice":
        return _slice(node, editor)
    return _split(node, editor) if node.op_type == "Split" else None


def _slice(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape = editor.shape(node.input[0])
    given = [editor.constant(name) if (name := optional_input(node, index)) else None for index in range(1, 5)]
    starts, ends, axes, steps = given
    if not shape or starts is None or ends is None or not _is_gathered(node.output[0], editor):
        return None
    if any(optional_input(node, index) and given[index - 1] is None for index in (3, 4)):
        return None
    axes = np.arange(len(starts)) if axes is None else axes % len(shape)
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    cuts = dict(zip(axes.tolist(), zip(starts.tolist(), ends.tolist(), steps.tolist(), strict=True), strict=True))
    last = len(shape) - 1
    start, end, step = cuts.pop(last, (0, 0, 0))
    if step <= 0:
        return None
    rows = np.arange(shape[last])[start:end:step]
    if not _is_scattered(rows, shape[last]):
        return None
    emit, value = Emitter(editor, node), node.input[0]
    if cuts:
        columns = zip(*((*cut[:2], axis, cut[2]) for axis, cut in cuts.items()), strict=True)
        value = emit("Slice", value, *(emit.constant(list(column), "cut") for column in columns), part="cut")
    emit("Gather", value, emit.constant(rows, "rows"), output=node.output[0], axis=last)
    return emit.nodes


def _split(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape = editor.shape(node.input[0])
    if not shape or attributes(node).get("axis", 0) % len(shape) != len(shape) - 1:
        return None
    sizes = _sizes(node, editor, shape[-1])
    emit, outputs, gathered = Emitter(editor, node), list(node.output), []
    for place, (name, rows) in enumerate(
        zip(node.output, np.split(np.arange(shape[-1]), np.cumsum(sizes)), strict=False)
    ):
        if _is_scattered(rows, shape[-1]) and _is_gathered(name, editor):
            gathered.append((name, rows))
            outputs[place] = editor.fresh(f"{name}/cut")
    if not gathered:
        return None
    emit.many("Split", *node.input, outputs=tuple(outputs), **attributes(node))
    for name, rows in gathered:
        emit("Gather", node.input[0], emit.constant(rows, "rows"), part="part", output=name, axis=len(shape) - 1)
    return emit.nodes


def _sizes(node: NodeProto, editor: GraphEditor, whole: int) -> list[int]:
    """The sizes of a Split's parts; none if they are computed, or all are empty."""
    if name := optional_input(node, 1):
        known = editor.constant(name)
        return [] if known is None else known.tolist()
    if not whole:
        return []
    # The last part is the smallest.
    size = -(-whole // len(node.output))
    return [min(size, whole - begin) for begin in range(0, whole, size)]


def _is_scattered(rows: np.ndarray, size: int) -> bool:
    """Whether a part of the last axis has neighbours that are apart in memory; one element is beside other rows'."""
    return 0 < len(rows) < size and (len(rows) == 1 or bool(rows[1] - rows[0] > 1))


def _is_gathered(name: str, editor: GraphEditor) -> bool:
    """Whether a gather reads a value, perhaps in another shape."""
    waiting = [name]
    while waiting:
        value = waiting.pop()
        for node in editor.consumers(value):
            if node.input[0] != value:
                continue
            if node.op_type in _GATHERING or (node.op_type == "Pad" and _is_mirrored(node)):
                return True
            if node.op_type in RESHAPING:
                waiting.append(node.output[0])
    return False


def _is_mirrored(pad: NodeProto) -> bool:
    return bool(attributes(pad).get("mode", "constant") != "constant")

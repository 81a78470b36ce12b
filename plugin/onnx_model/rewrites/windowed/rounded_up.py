"""Poolings whose number of windows is rounded up: makes the padding of the last windows explicit.

IREE 3.13 pads by a whole stride where ``ceil_mode`` is set. It then divides averages by numbers that include that
padding, and shifts the windows of some. After a maximum it refuses dimensions that have windows of one element and a
stride of one, and those that have a single window: "inferred input/output operand #2 has shape's dimension #2 to be 9,
but found 8". It rejects most powers (``LpPool``). A last window that would start in the padding after the input is no
window (ONNX's page of MaxPool, and ONNX Runtime). ONNX's own inference of shapes and IREE count it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite, rewrite_nodes
from sartor.onnx_model.graphs.infer import forget_shapes, infer_shapes
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.rewrites.windowed.windows import Window, window_of, without

_REPLACED = ("ceil_mode", "pads", "auto_pad", "count_include_pad")
# What no maximum is below.
_LOWEST = {"float16": -math.inf, "float32": -math.inf, "int8": -128, "uint8": 0}

_Pads = Sequence[tuple[int, int]]


@node_rewrite()
def pad_rounded_up(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace ``ceil_mode`` by padding, which no average counts, where IREE 3.13 compiles it to something else."""
    window = window_of(node, editor) if _is_rounded_up(node) else None
    output = editor.shape(node.output[0])
    if window is None or output is None or (node.op_type == "MaxPool" and not _is_refused(window, output[2:])):
        return None
    return _with_windows(node, editor, window, output[2:])


def drop_windows(model: ModelProto) -> tuple[str, ...]:
    """Leave out windows that would start after the input, and infer shapes again, in the order of the nodes.

    Must run before anything reads inferred shapes.
    """
    if not any(map(_is_rounded_up, nodes(model))):
        return ()
    infer_shapes(model)
    dropped: list[str] = []
    while names := rewrite_nodes(model, _FirstDropped()):
        # What ONNX inferred for this and all later nodes counts one window too many.
        dropped += names
        forget_shapes(model)
        infer_shapes(model)
    return tuple(dropped)


class _FirstDropped:
    """Rewrites the first node that has such windows, as the sizes of later ones depend on it."""

    def __init__(self) -> None:
        self._is_done = False

    def __call__(self, node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
        window = window_of(node, editor) if _is_rounded_up(node) else None
        if self._is_done or window is None:
            return None
        axes = range(len(window.sizes))
        windows = [_windows(window, axis) for axis in axes]
        if all(_starts_inside(window, axis, window.rounded_up(axis)) for axis in axes):
            return None
        replacement = (
            [without(node, ("ceil_mode",))]
            if windows == [window.fitting(axis) for axis in axes]
            else _with_windows(node, editor, window, windows)
        )
        self._is_done = replacement is not None
        return replacement


def _is_rounded_up(node: NodeProto) -> bool:
    return node.op_type in ("AveragePool", "LpPool", "MaxPool") and bool(attributes(node).get("ceil_mode"))


def _starts_inside(window: Window, axis: int, count: int) -> bool:
    """Whether the last of so many windows starts before the padding after the input."""
    return (count - 1) * window.strides[axis] < window.pads[axis][0] + window.sizes[axis]


def _windows(window: Window, axis: int) -> int:
    count = window.rounded_up(axis)
    return count if _starts_inside(window, axis, count) else count - 1


def _with_windows(
    node: NodeProto, editor: GraphEditor, window: Window, windows: Sequence[int]
) -> list[NodeProto] | None:
    """A pooling with so many windows by padding, instead of by rounding; None if that cannot be written."""
    emit = Emitter(editor, node)
    rests = [_rest(window, axis, count) for axis, count in enumerate(windows)]
    if node.op_type == "LpPool":
        _pooled(emit, _pad(emit, _enlarged(window.pads, rests)), node.output[0])
        return emit.nodes
    if node.op_type == "MaxPool":
        return _maximum(emit, window, rests) if emit.dtype(node.input[0]).name in _LOWEST else None
    counts = _counts(window, windows, is_padding_counted=bool(attributes(node).get("count_include_pad")))
    return None if 0 in counts else _average(emit, window, rests, counts)


def _is_refused(window: Window, windows: Sequence[int]) -> bool:
    return 1 in windows or (1, 1) in zip(window.kernel, window.strides, strict=True)


def _rest(window: Window, axis: int, windows: int) -> int:
    """Number of positions that the last window reads after the padded input."""
    begin, end = window.pads[axis]
    last = (windows - 1) * window.strides[axis] + window.extent(axis)
    return max(last - (begin + window.sizes[axis] + end), 0)


def _maximum(emit: Emitter, window: Window, rests: Sequence[int]) -> list[NodeProto]:
    source, node = emit.node.input[0], emit.node
    if len(node.output) > 1:
        # Indices are counted in the input without padding.
        begins, ends = zip(*_enlarged(window.pads, rests), strict=True)
        emit.many("MaxPool", source, outputs=tuple(node.output), pads=[*begins, *ends], **_kept(node))
        return emit.nodes
    lowest = emit.like(_LOWEST[emit.dtype(source).name], source, "lowest")
    _pooled(emit, _pad(emit, _enlarged(window.pads, rests), lowest), emit.node.output[0])
    return emit.nodes


def _average(emit: Emitter, window: Window, rests: Sequence[int], counts: Array) -> list[NodeProto]:
    """Average with all padding, and correct the divisors."""
    source, output = _pad(emit, _enlarged(window.pads, rests)), emit.node.output[0]
    ratios = (math.prod(window.kernel) / counts).astype(emit.dtype(emit.node.input[0]))
    if (ratios == 1).all():
        _pooled(emit, source, output)
    else:
        emit("Mul", _pooled(emit, source), emit.constant(ratios, "ratios"), part="divisors", output=output)
    return emit.nodes


def _counts(window: Window, windows: Sequence[int], *, is_padding_counted: bool) -> Array:
    """By how many elements each window's sum is divided, in the shape of the output's spatial dimensions."""
    counts = np.ones([1] * len(windows), np.int64)
    for axis, number in enumerate(windows):
        begin, end = window.pads[axis] if is_padding_counted else (0, 0)
        first = np.arange(number) * window.strides[axis] - window.pads[axis][0]
        taps = first[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        inside = ((taps >= -begin) & (taps < window.sizes[axis] + end)).sum(axis=1)
        counts = counts * inside.reshape([-1 if index == axis else 1 for index in range(len(windows))])
    return counts


def _enlarged(pads: _Pads, rests: Sequence[int]) -> _Pads:
    return [(begin, end + rest) for (begin, end), rest in zip(pads, rests, strict=True)]


def _pad(emit: Emitter, pads: _Pads, *value: str) -> str:
    source = emit.node.input[0]
    if not any(map(any, pads)):
        return source
    begins, ends = zip(*pads, strict=True)
    return emit("Pad", source, emit.constant([0, 0, *begins, 0, 0, *ends], "pads"), *value, part="padded")


def _pooled(emit: Emitter, source: str, output: str = "") -> str:
    """Emit the pooling itself on padded input."""
    return emit(emit.node.op_type, source, output=output, **_kept(emit.node))


def _kept(node: NodeProto) -> dict[str, Any]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute if item.name not in _REPLACED}

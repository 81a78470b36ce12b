"""Lowers transposed convolutions to convolutions: of blocks, or of an input with inserted zeros."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, rewrite_nodes
from sartor.onnx_model.rewrites.windowed.windows import Window, window_of


def stretched_conv(model: ModelProto) -> tuple[str, ...]:
    """Replace a ``ConvTranspose`` that IREE does not lower by inserting zeros and a ``Conv`` with the flipped kernel.

    If the kernel is as large as the stride, a 1x1 ``Conv`` computes each element's block, without inserted zeros.
    Dumoulin and Visin 2016, A guide to convolution arithmetic, relationship 14. IREE 3.13 fails on groups ("expected
    reassociation map #0 to have size equal to the expanded rank"), on pads that differ between the two ends, and on
    pads beyond the kernel, which take away elements.
    """
    return rewrite_nodes(model, _as_conv)


def _as_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "ConvTranspose":
        return None
    window, weight, shape = window_of(node, editor), editor.shape(node.input[1]), editor.shape(node.input[0])
    if window is None or weight is None or shape is None:
        return None
    group, rank = attributes(node).get("group", 1), len(window.sizes)
    if _is_of_blocks(node, editor, window):
        return _blocks(node, editor, window)
    low = [window.extent(axis) - 1 - window.pads[axis][0] for axis in range(rank)]
    if group == 1 and all(begin == end for begin, end in window.pads) and min(low) >= 0:
        return None
    extra = attributes(node).get("output_padding", [0] * rank)
    # The stretched input ends with ``stride - 1`` zeros that are not between elements.
    high = [window.extent(axis) - window.pads[axis][1] + extra[axis] - window.strides[axis] for axis in range(rank)]
    lengths = [size * stride for size, stride in zip(window.sizes, window.strides, strict=True)]
    if any(length + min(begin, 0) + min(end, 0) <= 0 for length, begin, end in zip(lengths, low, high, strict=True)):
        return None
    emit = Emitter(editor, node)
    value = _stretched(emit, shape, window)
    value = _cropped(emit, value, window, low, high)
    known = editor.constant(node.input[1])
    kernel = _computed(emit, weight, group) if known is None else emit.constant(_turned(known, group), "weight")
    pads = [max(each, 0) for each in (*low, *high)]
    emit(
        "Conv",
        *(value, kernel, *node.input[2:]),
        output=node.output[0],
        group=group,
        kernel_shape=list(window.kernel),
        dilations=list(window.dilations),
        pads=pads,
    )
    return emit.nodes


def _is_of_blocks(node: NodeProto, editor: GraphEditor, window: Window) -> bool:
    """Whether each element of the input becomes a block of its own in the output."""
    found = attributes(node)
    fits = window.kernel == window.strides and not any(map(any, window.pads)) and set(window.dilations) == {1}
    bare = found.get("group", 1) == 1 and not any(found.get("output_padding", ())) and "output_shape" not in found
    return fits and bare and editor.constant(node.input[1]) is not None


def _blocks(node: NodeProto, editor: GraphEditor, window: Window) -> list[NodeProto]:
    """A 1x1 convolution to all elements of a block, which are then moved to their places (Shi et al. 2016)."""
    emit, rank = Emitter(editor, node), len(window.sizes)
    weight, taps = editor.constant(node.input[1]), int(np.prod(window.kernel))
    assert weight is not None
    channels, batch = weight.shape[1], (editor.shape(node.input[0]) or (1,))[0]
    filters = weight.reshape(weight.shape[0], channels * taps).T.reshape(-1, weight.shape[0], *[1] * rank)
    inputs = [node.input[0], emit.constant(np.ascontiguousarray(filters), "filters")]
    if len(node.input) > 2 and node.input[2]:
        bias = editor.constant(node.input[2])
        if bias is None:
            inputs.append(_repeated(emit, str(node.input[2]), taps))
        else:
            inputs.append(emit.constant(np.repeat(bias, taps), "bias"))
    value = emit("Conv", *inputs, kernel_shape=[1] * rank)
    split = [batch, channels, *window.kernel, *window.sizes]
    value = emit("Reshape", value, emit.constant(split, "split"), part="split")
    order = [0, 1, *(each for axis in range(rank) for each in (2 + rank + axis, 2 + axis))]
    value = emit("Transpose", value, part="places", perm=order)
    joined = [batch, channels, *(size * each for size, each in zip(window.sizes, window.kernel, strict=True))]
    emit("Reshape", value, emit.constant(joined, "joined"), part="joined", output=node.output[0])
    return emit.nodes


def _repeated(emit: Emitter, name: str, times: int) -> str:
    """Repeat each element of a vector that is computed."""
    column = emit("Unsqueeze", name, emit.constant([1], "axis"), part="column")
    size = (emit.editor.shape(name) or (0,))[0]
    repeated = emit("Expand", column, emit.constant([size, times], "repeats"), part="repeat")
    return emit("Reshape", repeated, emit.constant([size * times], "flat"), part="flat")


def _stretched(emit: Emitter, shape: tuple[int, ...], window: Window) -> str:
    """Insert ``stride - 1`` zeros after every element in every spatial dimension."""
    value = str(emit.node.input[0])
    if max(window.strides) == 1:
        return value
    split, pads, joined = list(shape[:2]), [0, 0], list(shape[:2])
    for size, stride in zip(window.sizes, window.strides, strict=True):
        split += [size, 1]
        pads += [0, stride - 1]
        joined.append(size * stride)
    value = emit("Reshape", value, emit.constant(split, "split"), part="split")
    value = emit("Pad", value, emit.constant([*[0] * len(pads), *pads], "zeros"), part="stretch")
    return emit("Reshape", value, emit.constant(joined, "joined"), part="join")


def _cropped(emit: Emitter, value: str, window: Window, low: list[int], high: list[int]) -> str:
    """Take away what negative padding at the begin and the end of spatial dimensions takes."""
    cut = [axis for axis, ends in enumerate(zip(low, high, strict=True)) if min(ends) < 0]
    if not cut:
        return value
    starts = [max(-low[axis], 0) for axis in cut]
    ends = [window.sizes[axis] * window.strides[axis] + min(high[axis], 0) for axis in cut]
    axes = emit.constant([axis + 2 for axis in cut], "axes")
    return emit("Slice", value, emit.constant(starts, "starts"), emit.constant(ends, "ends"), axes, part="crop")


def _computed(emit: Emitter, shape: tuple[int, ...], group: int) -> str:
    """As ``_turned``, of weights that are not known."""
    each, kernel = shape[0] // group, shape[2:]
    order = [0, 2, 1, *range(3, len(shape) + 1)]
    value = emit("Reshape", emit.node.input[1], emit.constant([group, each, *shape[1:]], "groups"), part="groups")
    value = emit("Transpose", value, part="swap", perm=order)
    value = emit("Reshape", value, emit.constant([group * shape[1], each, *kernel], "kernel"), part="kernel")
    for axis, size in enumerate(kernel, 2):
        if size > 1:
            backward = emit.constant(list(range(size - 1, -1, -1)), "backward")
            value = emit("Gather", value, backward, part="flip", axis=axis)
    return value


def _turned(weight: Array, group: int) -> Array:
    """[inputs, outputs / group, …] to [outputs, inputs / group, …], flipped in every spatial dimension."""
    grouped = weight.reshape(group, weight.shape[0] // group, *weight.shape[1:]).swapaxes(1, 2)
    turned = grouped.reshape(group * weight.shape[1], weight.shape[0] // group, *weight.shape[2:])
    return np.flip(turned, axis=tuple(range(2, weight.ndim)))

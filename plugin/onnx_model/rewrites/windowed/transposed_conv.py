"""Lowers transposed convolutions to convolutions: to blocks of the result, or of an input with inserted zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite
from sartor.onnx_model.rewrites.windowed.windows import Window, window_of

# Where the stride is far beyond the kernel, the filters of a block are mostly zeros.
_MOST_ENLARGED = 4


@node_rewrite("ConvTranspose")
def stretched_conv(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace a ``ConvTranspose`` by a ``Conv`` without inserted zeros, or by one with them where IREE has none.

    IREE 3.13 inserts zeros, which are most of what it multiplies, and fails on groups ("expected reassociation map #0
    to have size equal to the expanded rank"), on pads that differ between the two ends, and on pads beyond the kernel,
    which take away elements.
    """
    window, weight, shape = window_of(node, editor), editor.shape(node.input[1]), editor.shape(node.input[0])
    if window is None or weight is None or shape is None:
        return None
    group, rank = attributes(node).get("group", 1), len(window.sizes)
    if (blocks := _blocks_of(node, editor, window)) is not None:
        return _by_blocks(node, editor, window, blocks)
    low = [window.extent(axis) - 1 - window.pads[axis][0] for axis in range(rank)]
    if group == 1 and all(begin == end for begin, end in window.pads) and min(low) >= 0:
        return None
    extra = attributes(node).get("output_padding", [0] * rank)
    # The stretched input ends with ``stride - 1`` zeros that are not between elements.
    high = [window.extent(axis) - window.pads[axis][1] + extra[axis] - window.strides[axis] for axis in range(rank)]
    lengths = [size * stride for size, stride in zip(window.sizes, window.strides, strict=True)]
    if any(length + min(begin, 0) + min(end, 0) <= 0 for length, begin, end in zip(lengths, low, high, strict=True)):
        return None
    # Dumoulin and Visin 2016, A guide to convolution arithmetic, relationship 14.
    emit = Emitter(editor, node)
    value = _stretched(emit, shape, window)
    value = _cropped(emit, value, window, low, high)
    known = editor.constant(node.input[1])
    kernel = _computed(emit, weight, group) if known is None else emit.constant(_turned(known, group), "weight")
    pads = [max(cropped, 0) for cropped in (*low, *high)]
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


@dataclass(frozen=True)
class _Blocks:
    """Blocks of ``stride`` neighbours that make up the result, one entry per spatial dimension.

    Attributes:
        count: how many blocks there are.
        taps: input elements that each is computed of.
        pads: of the input, before and after.
        cut: elements of the first block that are not in the result.
        sizes: of the result.
    """

    count: tuple[int, ...]
    taps: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    cut: tuple[int, ...]
    sizes: tuple[int, ...]


def _blocks_of(node: NodeProto, editor: GraphEditor, window: Window) -> _Blocks | None:
    """The blocks by which one convolution computes the result; None if it does not, or would gain nothing."""
    settings, axes = attributes(node), range(len(window.sizes))
    is_plain = settings.get("group", 1) == 1 and set(window.dilations) == {1} and "output_shape" not in settings
    if not is_plain or max(window.strides) == 1 or editor.constant(node.input[1]) is None:
        return None
    taps = [-(-kernel // stride) for kernel, stride in zip(window.kernel, window.strides, strict=True)]
    if math.prod(taps) * math.prod(window.strides) > _MOST_ENLARGED * math.prod(window.kernel):
        return None
    extra = settings.get("output_padding", [0] * len(axes))
    sizes = [
        (window.sizes[axis] - 1) * window.strides[axis] + window.kernel[axis] + extra[axis] - sum(window.pads[axis])
        for axis in axes
    ]
    before = [divmod(begin, stride) for (begin, _), stride in zip(window.pads, window.strides, strict=True)]
    count = [-(-(before[axis][1] + sizes[axis]) // window.strides[axis]) for axis in axes]
    low = [taps[axis] - 1 - before[axis][0] for axis in axes]
    high = [count[axis] + taps[axis] - 1 - window.sizes[axis] - low[axis] for axis in axes]
    if min(*sizes, *low, *high) < 0 or 0 in sizes:
        return None
    pads = tuple(zip(low, high, strict=True))
    return _Blocks(tuple(count), tuple(taps), pads, tuple(rest for _, rest in before), tuple(sizes))


def _by_blocks(node: NodeProto, editor: GraphEditor, window: Window, blocks: _Blocks) -> list[NodeProto]:
    """A convolution to all elements of a block, which are then moved to their places (Shi et al. 2016, Is the
    deconvolution layer the same as a convolutional layer?): the taps that reach one of them lie a stride apart.
    """
    emit, rank = Emitter(editor, node), len(window.sizes)
    weight, size = editor.constant(node.input[1]), int(np.prod(window.strides))
    assert weight is not None
    channels, batch = weight.shape[1], (editor.shape(node.input[0]) or (1,))[0]
    inputs = [node.input[0], emit.constant(_of_blocks(weight, window.strides, blocks.taps), "filters")]
    if len(node.input) > 2 and node.input[2]:
        bias = editor.constant(node.input[2])
        if bias is None:
            inputs.append(_repeated(emit, str(node.input[2]), size))
        else:
            inputs.append(emit.constant(np.repeat(bias, size), "bias"))
    pads = [begin for begin, _ in blocks.pads] + [end for _, end in blocks.pads]
    value = emit("Conv", *inputs, kernel_shape=list(blocks.taps), pads=pads)
    split = [batch, channels, *window.strides, *blocks.count]
    value = emit("Reshape", value, emit.constant(split, "split"), part="split")
    order = [0, 1, *(place for axis in range(rank) for place in (2 + rank + axis, 2 + axis))]
    value = emit("Transpose", value, part="places", perm=order)
    joined = [count * stride for count, stride in zip(blocks.count, window.strides, strict=True)]
    is_whole = (*joined,) == blocks.sizes
    whole = emit.constant([batch, channels, *joined], "joined")
    value = emit("Reshape", value, whole, part="joined", output=node.output[0] if is_whole else "")
    if not is_whole:
        starts, axes = emit.constant(list(blocks.cut), "starts"), emit.constant(list(range(2, 2 + rank)), "axes")
        ends = emit.constant([cut + size for cut, size in zip(blocks.cut, blocks.sizes, strict=True)], "ends")
        emit("Slice", value, starts, ends, axes, part="cut", output=node.output[0])
    return emit.nodes


def _of_blocks(weight: Array, strides: Sequence[int], taps: Sequence[int]) -> Array:
    """[inputs, outputs, …] to [outputs * elements of a block, inputs, taps …], flipped, with zeros for more taps."""
    rank, (inputs, outputs, *kernel) = len(strides), weight.shape
    beyond = [(0, tap * stride - size) for tap, stride, size in zip(taps, strides, kernel, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *beyond])
    parts = [size for pair in zip(taps, strides, strict=True) for size in pair]
    apart = padded.reshape(inputs, outputs, *parts)
    order = [1, *(3 + 2 * axis for axis in range(rank)), 0, *(2 + 2 * axis for axis in range(rank))]
    joined = apart.transpose(order).reshape(-1, inputs, *taps)
    return np.ascontiguousarray(np.flip(joined, axis=tuple(range(2, 2 + rank))))


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
    channels, kernel = shape[0] // group, shape[2:]
    order = [0, 2, 1, *range(3, len(shape) + 1)]
    value = emit("Reshape", emit.node.input[1], emit.constant([group, channels, *shape[1:]], "groups"), part="groups")
    value = emit("Transpose", value, part="swap", perm=order)
    value = emit("Reshape", value, emit.constant([group * shape[1], channels, *kernel], "kernel"), part="kernel")
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

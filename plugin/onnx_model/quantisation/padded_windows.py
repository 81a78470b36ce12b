"""Integer convolutions after a Pad with the zero point: which taps of a window lie in the image."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.windowed.windows import Window, window_of

# Attributes of a convolution that pads itself.
_OWN_PADDING = ("pads", "auto_pad")


def padding_of(node: NodeProto, editor: GraphEditor) -> NodeProto | None:
    """The Pad node that pads the image of a convolution with the zero point; None if there is none."""
    pad = editor.producer(node.input[0]) if node.op_type == "ConvInteger" else None
    if pad is None or pad.op_type != "Pad" or editor.only_consumer(pad.output[0]) is None:
        return None
    if optional_input(pad, 3) or not attributes(node).keys().isdisjoint(_OWN_PADDING):
        return None
    amounts = editor.constant(pad.input[1])
    same = optional_input(pad, 2) == optional_input(node, 2) or _are_equal(pad, node, editor)
    if amounts is None or not same or amounts.min() < 0 or attributes(pad).get("mode", "constant") != "constant":
        return None
    rank = len(amounts) // 2
    return None if any([*amounts[:2], *amounts[rank : rank + 2]]) else pad


def _are_equal(pad: NodeProto, node: NodeProto, editor: GraphEditor) -> bool:
    filling, zero = (editor.constant(optional_input(padded, 2)) for padded in (pad, node))
    return filling is not None and zero is not None and filling.size == zero.size == 1 and filling.item() == zero.item()


def pads_of(padding: NodeProto, editor: GraphEditor) -> list[int]:
    """The ``pads`` attribute of a convolution that replaces a Pad before it."""
    amounts = editor.constant(padding.input[1])
    pads = [] if amounts is None else amounts.tolist()
    rank = len(pads) // 2
    return [*pads[2:rank], *pads[rank + 2 :]]


def unpadded_window(node: NodeProto, padding: NodeProto | None, editor: GraphEditor) -> Window | None:
    """The geometry of a convolution of the image before ``padding``, with its amounts as pads; None if unknown."""
    bare = NodeProto()
    bare.CopyFrom(node)
    if padding is not None:
        bare.input[0] = padding.input[0]
        bare.attribute.append(helper.make_attribute("pads", pads_of(padding, editor)))
    return window_of(bare, editor)


def window_sums(weights: Array, window: Window) -> Array:
    """Sum the weights ``[channels, depth, taps…]`` over the taps of each window that lie in the image.

    Returns:
        Sums ``[1, channels, results…]``, with one result in each dimension if no window leaves the image.
    """
    taps: Array = weights.sum(axis=1)
    if not any(any(sides) for sides in window.pads):
        return np.asarray(taps.reshape(len(taps), -1).sum(axis=1)).reshape(1, -1, *(1,) * (taps.ndim - 1))
    for axis in range(len(window.sizes)):
        # tensordot contracts axis 1, the first dimension of taps that is left, and appends the results as last axis.
        taps = np.tensordot(taps, _inside(window, axis), axes=([1], [1]))
    return taps[None]


def _inside(window: Window, axis: int) -> Array:
    """Which taps of each window lie in the image along one dimension: ``[results, taps]`` of 0 and 1."""
    low, high = window.pads[axis]
    count = (low + window.sizes[axis] + high - window.extent(axis)) // window.strides[axis] + 1
    starts = np.arange(count) * window.strides[axis] - low
    places = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
    return np.asarray((places >= 0) & (places < window.sizes[axis]), np.int64)

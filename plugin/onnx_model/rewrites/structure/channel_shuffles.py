"""Writes channel shuffles whose results are taken apart as strided slices of channels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

_CHANNEL = 1
_RESHAPE_TRANSPOSE_RESHAPE = ("Reshape", "Transpose", "Reshape")
_GROUPS_FIRST = [1, 0, 2]


class _Shuffled(NamedTuple):
    """Images ``[N, C, H, W]`` shuffled to ``[groups, N, C / groups, H, W]``."""

    image: str
    channels: int
    groups: int


@node_rewrite("Gather")
def slice_shuffled(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace a group of shuffled channels by a strided slice of the channels that it consists of.

    ShuffleNetV2's authors reshape ``[N, C, H, W]`` to ``[N * C / 2, 2, H * W]``, transpose it to ``[2, N * C / 2, …]``
    and index the result: these are the even and the odd channels. A tensor of five dimensions would have no layout with
    adjacent channels. The slice of a concatenation is the concatenation of slices, which one kernel computes.

    Returns:
        The names of the replaced nodes.
    """
    if attributes(node).get("axis", 0) != 0:
        return None
    index, shuffled = editor.constant(node.input[1]), _shuffled(node.input[0], editor)
    if shuffled is None or index is None or index.ndim > 0:
        return None
    first = int(index) % shuffled.groups
    emit, parts = Emitter(editor, node), _parts(shuffled, editor)
    slices = [
        emit.constant(np.array([bound]), "slice") for bound in (first, np.iinfo(np.int64).max, 1, shuffled.groups)
    ]
    image = emit("Concat", *parts, part="joined", axis=_CHANNEL) if len(parts) > 1 else shuffled.image
    emit("Slice", image, *slices, output=node.output[0])
    return emit.nodes


def _parts(shuffled: _Shuffled, editor: GraphEditor) -> list[str]:
    """The images that a shuffled one is concatenated from, if groups divide the channels of each."""
    concat = editor.producer(shuffled.image)
    if concat is None or concat.op_type != "Concat" or attributes(concat)["axis"] not in (_CHANNEL, _CHANNEL - 4):
        return [shuffled.image]
    shapes = [editor.shape(name) for name in concat.input]
    if any(shape is None or shape[_CHANNEL] % shuffled.groups for shape in shapes):
        return [shuffled.image]
    return list(concat.input)


def _shuffled(name: str, editor: GraphEditor) -> _Shuffled | None:
    """The shuffle that ends in a value; None if it is none."""
    names = [name]
    for operator in reversed(_RESHAPE_TRANSPOSE_RESHAPE):
        node = editor.producer(names[-1])
        if node is None or node.op_type != operator:
            return None
        if operator == "Transpose" and attributes(node).get("perm") != _GROUPS_FIRST:
            return None
        names.append(node.input[0])
    result, _, split, image = (editor.shape(name) for name in names)
    if result is None or split is None or image is None or len(image) != 4 or 0 in image:
        return None
    batch, channels, height, width = image
    groups = split[1]
    if split != (batch * channels // groups, groups, height * width) or channels % groups:
        return None
    is_shuffle = result == (groups, batch, channels // groups, height, width)
    return _Shuffled(names[-1], channels, groups) if is_shuffle else None

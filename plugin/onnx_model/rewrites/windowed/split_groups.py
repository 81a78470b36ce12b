"""Splits convolutions that have a few wide groups into one convolution per group."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, node_rewrite

# More groups would add too many layers to the model, and narrower ones would not fill vectors.
_MOST_GROUPS = 8
_FEWEST_CHANNELS = 8
_OF_VOLUMES = 5
"""Dimensions of their filters."""


@node_rewrite("Conv")
def split_groups(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace a grouped ``Conv`` by ``Split``, a ``Conv`` per group and ``Concat``, which all routines support.

    IREE 3.13 computes grouped convolutions by scalar loops at 3 GFLOP/s; other convolutions reach 150 GFLOP/s and more.
    """
    groups = attributes(node).get("group", 1)
    if not 1 < groups <= _MOST_GROUPS:
        return None
    filters = editor.constant(node.input[1])
    bias = editor.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if filters is None or (bias is None and len(node.input) > 2 and node.input[2]):
        return None
    if min(filters.shape[1], filters.shape[0] // groups) < _FEWEST_CHANNELS:
        return None
    emit = Emitter(editor, node)
    sizes = emit.constant([filters.shape[1]] * groups, "sizes")
    images = emit.many("Split", node.input[0], sizes, part="split", outputs=("",) * groups, axis=1)
    results = [_group(emit, image, index, groups, filters, bias) for index, image in enumerate(images)]
    emit("Concat", *results, output=node.output[0], axis=1)
    return emit.nodes


@node_rewrite("Conv")
def doubled_volumes(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Give each channel of a ``Conv`` that is depthwise over volumes two equal filters, and drop every second result.

    IREE 3.13 rejects those with one filter for each channel.
    """
    shape, groups = editor.shape(node.input[1]), attributes(node).get("group", 1)
    if shape is None or len(shape) != _OF_VOLUMES or shape[:2] != (groups, 1) or groups == 1:
        return None
    emit = Emitter(editor, node)
    inputs = [node.input[0], *(_twice(emit, name) for name in node.input[1:] if name)]
    result = emit("Conv", *inputs, **attributes(node))
    every_second = {"starts": 0, "ends": 2 * groups, "axes": 1, "steps": 2}
    ranges = (emit.constant([value], name) for name, value in every_second.items())
    emit("Slice", result, *ranges, part="first", output=node.output[0])
    return emit.nodes


def _twice(emit: Emitter, name: str) -> str:
    """Each element along the first axis twice."""
    known = emit.editor.constant(name)
    if known is not None:
        return emit.constant(np.repeat(known, 2, axis=0), "twice")
    shape = emit.editor.shape(name) or ()
    pairs = emit("Concat", *[emit("Unsqueeze", name, emit.constant([1], "axis"), part="one")] * 2, part="pairs", axis=1)
    return emit("Reshape", pairs, emit.constant([2 * shape[0], *shape[1:]], "twice_shape"), part="twice")


def _group(emit: Emitter, image: str, index: int, groups: int, filters: Array, bias: Array | None) -> str:
    count = filters.shape[0] // groups
    kept = slice(index * count, (index + 1) * count)
    inputs = [image, emit.constant(filters[kept], f"filters{index}")]
    inputs += [] if bias is None else [emit.constant(bias[kept], f"bias{index}")]
    settings = attributes(emit.node) | {"group": 1}
    return emit("Conv", *inputs, part=f"group{index}", **settings)

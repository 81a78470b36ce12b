"""Lowers ONNX Runtime's rotary embedding (Su et al. 2021, section 3.4) to products and sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering


def _rotary(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``RotaryEmbedding(x, positions, cosines, sines)``; x is [batch, length, width], or four sizes.

    Those are [batch, heads, length, head]. Elements beyond twice the tables' width are not turned.
    """
    shape, table, settings = editor.shape(node.input[0]), editor.shape(node.input[2]), attributes(node)
    places = editor.shape(node.input[1])
    if shape is None or table is None or places is None:
        return None
    if settings.get("is_packed_batching"):
        raise UnsupportedModelError(f"{describe_node(node)} has packed batches; one batch per row was expected")
    emit, per_head = Emitter(editor, node), len(shape) == 4
    length, turned = shape[2 if per_head else 1], 2 * table[1]
    head = shape[3] if per_head else (shape[2] // settings["num_heads"] if settings.get("num_heads") else turned)
    heads = shape[1] if per_head else shape[2] // head
    value = node.input[0]
    if per_head:
        value = emit("Transpose", value, part="length_first", perm=[0, 2, 1, 3])
    value = emit("Reshape", value, emit.constant([shape[0], length, heads, head], "heads"), part="heads")
    rest = ""
    if turned < head:
        sizes = emit.constant([turned, head - turned], "sizes")
        value, rest = emit.many("Split", value, sizes, part="split", outputs=("", ""), axis=-1)
    is_interleaved = bool(settings.get("interleaved"))
    angles, whole = _angles(emit, places, length), [shape[0], length, heads, turned]
    value = turned_pairs(emit, value, angles, whole, is_interleaved=is_interleaved)
    if rest:
        value = emit("Concat", value, rest, part="join", axis=-1)
    if per_head:
        emit("Transpose", value, output=node.output[0], perm=[0, 2, 1, 3])
    else:
        emit("Reshape", value, emit.constant(list(shape), "shape"), output=node.output[0])
    return emit.nodes


def _angles(emit: Emitter, places: tuple[int, ...], length: int) -> tuple[str, str]:
    """Cosines and sines per position, [batch, length, 1, half]; one position is that of the first element."""
    position = emit.node.input[1]
    if len(places) == 1:
        steps = emit.constant(np.arange(length)[None], "steps", emit.dtype(position))
        position = emit("Add", position, steps, part="positions")
    axes = emit.constant([2], "angle_axes")
    gathered = [emit("Gather", name, position, part="angles", axis=0) for name in emit.node.input[2:4]]
    cosine, sine = (emit("Unsqueeze", name, axes, part="per_head") for name in gathered)
    return cosine, sine


def turned_pairs(emit: Emitter, value: str, angles: tuple[str, str], shape: list[int], *, is_interleaved: bool) -> str:
    """Pairs of elements turned by their angles; pairs are neighbours, or lie half the width apart.

    The other element of each is gathered, which is computed with the products. Parts that are computed apart and joined
    are copied one after the other.

    Args:
        emit: of the node.
        value: [batch, length, heads, width], which is ``shape``.
        angles: cosines and sines, [batch, length, 1, width / 2] each.
        shape: sizes of the value.
        is_interleaved: whether pairs are neighbours.
    """
    half = shape[3] // 2
    paired = [*shape[:3], half, 2] if is_interleaved else [*shape[:3], 2, half]
    axis = 4 if is_interleaved else 3
    pairs = emit("Reshape", value, emit.constant(paired, "pairs"), part="pairs")
    axes = emit.constant([axis], "pair_axis")
    cosine, sine = (emit("Unsqueeze", angle, axes, part="of_pairs") for angle in angles)
    is_real = emit.constant(np.reshape([True, False], [2] if is_interleaved else [2, 1]), "is_real", bool)
    signed = emit("Where", is_real, emit("Neg", sine, part="negated"), sine, part="signed")
    others = emit("Gather", pairs, emit.constant([1, 0], "others"), part="others", axis=axis)
    added = emit("Mul", others, signed, part="added")
    turned = emit("Add", emit("Mul", pairs, cosine, part="kept"), added, part="turned")
    return emit("Reshape", turned, emit.constant(shape, "turned_shape"), part="width")


ROTARY: Mapping[str, Lowering] = {"RotaryEmbedding": _rotary}

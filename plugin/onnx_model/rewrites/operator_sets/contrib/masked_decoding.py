"""Lowers ONNX Runtime's DecoderMaskedMultiHeadAttention: attention of one token over a buffer of keys and values.

Of a buffer with room for some number of positions those count that a call is told of; the token's own come behind them.
Where a search by beams shares buffers, a table tells for each position which beam's row a beam goes on from.
Definition:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DecoderMaskedMultiHeadAttention
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

OPERATOR = "DecoderMaskedMultiHeadAttention"
_BY_HEAD_RANK, _MHA_BIAS = 4, 3
_KEY, _VALUE, _MASK, _ADDEND, _PAST_KEY, _PAST_VALUE, _LENGTH, _BEAMS, _ORIGINS, _BIAS = range(1, 11)


@dataclass(frozen=True)
class _Sizes:
    """Sizes of one attention.

    Attributes:
        batch: number of sequences, each beam one.
        beams: of a search.
        heads: number of heads.
        width: of a head.
        room: positions of the buffers.
    """

    batch: int
    beams: int
    heads: int
    width: int
    room: int

    def per_head(self, length: int) -> list[int]:
        """The shape of keys or values."""
        return [self.batch, self.heads, length, self.width]


def _decoder_masked_attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Queries, keys and values are [batch, 1, width], or all three packed; buffers [batch, heads, positions, width of a
    head]."""
    options = attributes(node)
    _refuse(node, editor)
    if not options.get("past_present_share_buffer") or not optional_input(node, _PAST_KEY):
        return _several_headed(node, editor)
    shape, room = editor.shape(node.input[0]), editor.shape(node.input[_PAST_KEY])
    origins = optional_input(node, _ORIGINS)
    if shape is None or room is None or (origins and editor.shape(origins) is None):
        return None
    beams = (editor.shape(origins) or (0, 1))[1] if origins else 1
    sizes = _Sizes(shape[0], beams, int(options["num_heads"]), room[3], room[2])
    emit = Emitter(editor, node)
    query, key, value = _operands(emit, sizes)
    before = _before(emit, sizes)
    keys, values = (
        _written(emit, sizes, before, new, node.input[index], part)
        for new, index, part in ((key, _PAST_KEY, "keys"), (value, _PAST_VALUE, "values"))
    )
    for name, output in zip((keys, values), node.output[1:], strict=False):
        if output:
            emit("Identity", name, part="present", output=output)
    if origins:
        places = _places(emit, sizes, before)
        keys, values = (_of_beams(emit, sizes, places, name) for name in (keys, values))
    _attend(emit, sizes, before, query, keys, values)
    return emit.nodes


def _refuse(node: NodeProto, editor: GraphEditor) -> None:
    """Refuse what returns its scores, or does not say how many positions count.

    Raises:
        UnsupportedModelError: if it does.
    """
    scores = node.output[3] if len(node.output) > 3 else ""
    if scores and (editor.consumers(scores) or editor.is_output(scores)):
        raise UnsupportedModelError(f"{describe_node(node)} returns its scores, which is not supported; export without")
    is_shared = bool(attributes(node).get("past_present_share_buffer") and optional_input(node, _PAST_KEY))
    if not is_shared and not optional_input(node, _ORIGINS):
        return
    if not is_shared or not all(optional_input(node, index) for index in (_PAST_VALUE, _LENGTH)):
        raise UnsupportedModelError(
            f"{describe_node(node)} shares buffers of keys and values, and lacks one of them or past_sequence_length"
        )


def _several_headed(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """The node as MultiHeadAttention, which takes the same in another order, and caches that grow.

    Keys by heads, as an encoder's, have their bias already.
    """
    emit = Emitter(editor, node)
    shapes = [editor.shape(node.input[0]), editor.shape(optional_input(node, _KEY) or node.input[0])]
    if shapes[0] is None or shapes[1] is None:
        return None
    order = (0, _KEY, _VALUE, _BIAS, _MASK, _ADDEND, _PAST_KEY, _PAST_VALUE)
    names = [optional_input(node, index) for index in order]
    if names[_MHA_BIAS] and len(shapes[1]) == _BY_HEAD_RANK:
        bounds = [emit.constant([bound], "bound") for bound in (0, shapes[0][2])]
        names[0] = emit("Add", names[0], emit("Slice", names[_MHA_BIAS], *bounds, part="own_bias"), part="bias")
        names[_MHA_BIAS] = ""
    options = {name: value for name, value in attributes(node).items() if name in ("mask_filter_value", "scale")}
    if not names[_KEY]:
        count = int(attributes(node)["num_heads"])
        packed = emit.constant([0, 0, 3, count, -1], "packed")
        split = emit("Reshape", names[0], packed, part="unpack")
        names[0] = emit("Transpose", split, part="unpack", perm=[0, 1, 3, 2, 4])
    emit.many(
        "MultiHeadAttention",
        *names,
        outputs=tuple(node.output[:3]),
        domain=node.domain,
        num_heads=attributes(node)["num_heads"],
        **options,
    )
    return emit.nodes


def _operands(emit: Emitter, sizes: _Sizes) -> tuple[str, str, str]:
    """The query, the key and the value with their biases, [batch, heads, 1, width of a head]."""
    names = [optional_input(emit.node, index) for index in range(3)]
    thirds = emit.constant([sizes.heads * sizes.width] * 3, "thirds")
    if not names[_KEY]:
        names = list(emit.many("Split", names[0], thirds, part="unpack", outputs=("", "", ""), axis=-1))
    if bias := optional_input(emit.node, _BIAS):
        parts = emit.many("Split", bias, thirds, part="split_bias", outputs=("", "", ""), axis=0)
        names = [emit("Add", name, part, part="bias") for name, part in zip(names, parts, strict=True)]
    # One position: heads may come before it.
    shape = emit.constant(sizes.per_head(1), "heads")
    query, key, value = (emit("Reshape", name, shape, part="heads") for name in names)
    return query, key, value


def _before(emit: Emitter, sizes: _Sizes) -> str:
    """The number of positions before the token, int64 of shape [1].

    It is a row of a table of as many numbers as buffers have room for, so that whoever runs the module refuses others
    as it does tokens that a model does not know: nothing would be written for them.
    """
    places = emit.shared_constant(np.arange(sizes.room, dtype=np.int64), "places")
    length = emit("Reshape", emit.node.input[_LENGTH], emit.constant([1], "one"), part="length")
    return emit("Gather", places, length, part="before", axis=0)


def _positions(emit: Emitter, sizes: _Sizes) -> str:
    """The positions of a buffer, [1, 1, positions, 1]."""
    return emit.shared_constant(np.arange(sizes.room, dtype=np.int64)[None, None, :, None], "positions")


def _written(emit: Emitter, sizes: _Sizes, before: str, new: str, past: str, part: str) -> str:
    """A buffer with the token's row behind those before it."""
    is_new = emit("Equal", _positions(emit, sizes), before, part=f"{part}_is_new")
    return emit("Where", is_new, new, past, part=part)


def _places(emit: Emitter, sizes: _Sizes, before: str) -> str:
    """For each sequence and position the row, of all buffers' rows, that it goes on from: [batch, positions].

    The token's own row, and what does not count, is in the sequence's buffer.
    """
    origins = emit.node.input[_ORIGINS]
    searches = sizes.batch // sizes.beams
    given = (emit.editor.shape(origins) or (0, 0, sizes.room))[2]
    taken = emit("Cast", origins, part="origins", to=TensorProto.INT64)
    if given != sizes.room:
        missing = np.zeros((searches, sizes.beams, max(0, sizes.room - given)), np.int64)
        bounds = [emit.constant([bound], "bound") for bound in (0, min(given, sizes.room), 2)]
        taken = emit("Slice", taken, *bounds, part="origins")
        taken = emit("Concat", taken, emit.constant(missing, "others"), part="origins", axis=2)
    first = np.arange(searches, dtype=np.int64)[:, None, None] * sizes.beams
    sequences = emit("Add", taken, emit.constant(first, "first_beams"), part="origins")
    shape = emit.constant([sizes.batch, sizes.room], "by_sequence")
    sequences = emit("Reshape", sequences, shape, part="by_sequence")
    columns = emit.constant(np.arange(sizes.room, dtype=np.int64)[None], "columns")
    is_earlier = emit("Less", columns, before, part="is_earlier")
    own = emit.constant(np.arange(sizes.batch, dtype=np.int64)[:, None], "own")
    chosen = emit("Where", is_earlier, sequences, own, part="chosen")
    rows = emit("Mul", chosen, emit.constant([sizes.room], "room"), part="rows")
    return emit("Add", rows, columns, part="rows")


def _of_beams(emit: Emitter, sizes: _Sizes, places: str, buffers: str) -> str:
    """Keys or values of the beams that each sequence goes on from."""
    by_row = emit("Transpose", buffers, part="by_row", perm=[0, 2, 1, 3])
    flat = emit.constant([sizes.batch * sizes.room, sizes.heads * sizes.width], "flat_rows")
    rows = emit("Gather", emit("Reshape", by_row, flat, part="flat_rows"), places, part="moved", axis=0)
    split = emit.constant([sizes.batch, sizes.room, sizes.heads, sizes.width], "split_rows")
    return emit("Transpose", emit("Reshape", rows, split, part="moved"), part="moved_by_head", perm=[0, 2, 1, 3])


def _attend(emit: Emitter, sizes: _Sizes, before: str, query: str, keys: str, values: str) -> None:
    """``softmax(q k^T * scale + addends) v`` of the positions that count."""
    node, source = emit.node, emit.node.input[0]
    turned = emit("Transpose", keys, part="turn_keys", perm=[0, 1, 3, 2])
    scores = emit("MatMul", query, turned, part="scores")
    scale = attributes(node).get("scale") or 1 / math.sqrt(sizes.width)
    scores = emit("Mul", scores, emit.like(scale, source, "scale"), part="scale")
    if addend := optional_input(node, _ADDEND):
        shape = emit.editor.shape(addend) or (1, 1, 1, sizes.room)
        scores = emit("Add", scores, _lengthened(emit, sizes, addend, shape), part="addend")
    if mask := optional_input(node, _MASK):
        scores = emit("Add", scores, _excluded(emit, sizes, mask), part="mask")
    counts = emit("LessOrEqual", _positions(emit, sizes), before, part="counts")
    across = emit("Reshape", counts, emit.constant([1, 1, 1, sizes.room], "across"), part="counts_across")
    limits: Any = ml_dtypes.finfo(emit.dtype(source))  # type: ignore[no-untyped-call]
    scores = emit("Where", across, scores, emit.like(float(limits.min), source, "least"), part="visible")
    # What was never written may be anything.
    live = emit("Where", counts, values, emit.like(0.0, source, "nothing"), part="live_values")
    context = emit("MatMul", emit("Softmax", scores, part="softmax", axis=-1), live)
    flat = emit.constant([sizes.batch, 1, sizes.heads * sizes.width], "flat")
    emit("Reshape", context, flat, part="flatten_heads", output=node.output[0])


def _excluded(emit: Emitter, sizes: _Sizes, mask: str) -> str:
    """What is added to scores where the mask, [batch, positions], is zero: [batch, 1, 1, positions]."""
    source = emit.node.input[0]
    valid = emit("Greater", mask, emit.like(0, mask, "zero"), part="valid")
    excluded = float(attributes(emit.node).get("mask_filter_value", -10000.0))
    added = emit("Where", valid, emit.like(0.0, source, "kept"), emit.like(excluded, source, "excluded"), part="added")
    raised = emit("Unsqueeze", added, emit.constant([1, 2], "axes"), part="added")
    length = (emit.editor.shape(mask) or (0, sizes.room))[1]
    return _lengthened(emit, sizes, raised, (sizes.batch, 1, 1, length))


def _lengthened(emit: Emitter, sizes: _Sizes, added: str, shape: tuple[int, ...]) -> str:
    """What is added to scores, as long as a buffer: what comes behind does not count.

    Raises:
        UnsupportedModelError: if it has more positions than buffers have room for.
    """
    missing = sizes.room - shape[-1]
    if missing < 0:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} masks {shape[-1]} positions, and its buffers have room for {sizes.room}"
        )
    if not missing:
        return added
    rest = emit.constant(np.zeros((*shape[:-1], missing), emit.dtype(emit.node.input[0])), "rest")
    return emit("Concat", added, rest, part="lengthened", axis=3)


MASKED_DECODING: Mapping[str, Lowering] = {OPERATOR: _decoder_masked_attention}

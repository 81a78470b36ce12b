"""Lowers ONNX Runtime's GroupQueryAttention at static shapes: groups of queries share keys, and caches are values.

Sequence ``b`` has ``seqlens_k[b] + 1`` positions in all, of which the last are new; the cache of a first prompt, which
is as long as the total length, is not read. Definition:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
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
from sartor.onnx_model.rewrites.operator_sets.contrib.cached_codes import CachedCodes, has_codes, unsupported_codes
from sartor.onnx_model.rewrites.operator_sets.contrib.rotary import turned_pairs

_KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COSINES, _SINES, _POSITIONS, _BIAS, _SINK = range(1, 12)
_UNSUPPORTED_INPUTS = {14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens"}
_UNSUPPORTED_OPTIONS = ("qk_output", "sliding_window_cache")


@dataclass(frozen=True)
class _Sizes:
    """Sizes of one attention.

    Attributes:
        batch: number of sequences.
        length: new positions.
        heads, groups: number of heads of queries, and of keys.
        width: of a head.
        past: positions of the cache that is given.
        present: positions of the caches that are returned.
    """

    batch: int
    length: int
    heads: int
    groups: int
    width: int
    past: int
    present: int


def _group_query_attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Queries are [batch, length, width], alone or with keys and values; caches [batch, heads, positions, width]."""
    _refuse(node, editor)
    sizes = _sizes(node, editor)
    if sizes is None:
        return None
    emit = Emitter(editor, node)
    before = _positions_before(emit, sizes)
    query, key, value = _operands(emit, sizes)
    if attributes(node).get("do_rotary"):
        angles = _angles(emit, sizes, before)
        query = _turned(emit, query, angles, sizes, sizes.heads)
        key = _turned(emit, key, angles, sizes, sizes.groups)
    read = (
        _read(emit, sizes, before, index, new, part)
        for index, (new, part) in enumerate(((key, "keys"), (value, "values")))
    )
    _attend(emit, sizes, before, query, *read)
    return emit.nodes


def _read(emit: Emitter, sizes: _Sizes, before: str, index: int, new: str, part: str) -> str:
    """The keys, ``index`` 0, or values that are attended to; the cache with them is returned."""
    node = emit.node
    past, output = optional_input(node, _PAST_KEY + index), node.output[1 + index] if node.output[1 + index :] else ""
    if not has_codes(node):
        cache = _cached(emit, sizes, before, new, past, part)
        if output:
            emit("Identity", cache, part="present", output=output)
        return cache
    codes = CachedCodes.of(emit, index, sizes.groups, sizes.width, node.input[0])
    by_head = emit("Transpose", new, part=f"{part}_to_heads", perm=[0, 2, 1, 3])
    rows = emit("Transpose", codes.rounded(by_head), part=f"{part}_from_heads", perm=[0, 2, 1, 3])
    cache = _cached(emit, sizes, before, rows, codes.read(past) if past else "", part)
    if output:
        codes.stored(cache, output)
    return codes.values(cache)


def _refuse(node: NodeProto, editor: GraphEditor) -> None:
    settings = attributes(node)
    names = [name for index, name in _UNSUPPORTED_INPUTS.items() if optional_input(node, index)]
    names += [name for name in _UNSUPPORTED_OPTIONS if settings.get(name)]
    cache = optional_input(node, _PAST_KEY)
    if has_codes(node):
        names += [reason] if (reason := unsupported_codes(node, editor)) else []
    elif cache and editor.element_type(cache) not in (0, editor.element_type(node.input[0])):
        names.append("a cache in another type")
    names += ["output_qk"] if len(node.output) > 3 and node.output[3] else []
    if names:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {', '.join(names)}, which is not supported; export the model without"
        )


def _sizes(node: NodeProto, editor: GraphEditor) -> _Sizes | None:
    """The sizes; None while the shape of an operand is not known.

    Raises:
        UnsupportedModelError: the length of the caches that are returned depends on an input.
    """
    shape, settings = editor.shape(node.input[0]), attributes(node)
    cache = optional_input(node, _PAST_KEY)
    if shape is None or (cache and editor.shape(cache) is None):
        return None
    heads, groups = int(settings["num_heads"]), int(settings["kv_num_heads"])
    is_packed = not optional_input(node, _KEY)
    width = shape[2] // (heads + 2 * groups if is_packed else heads)
    past = (editor.shape(cache) or (0, 0, 0))[2] if cache else 0
    total, declared = editor.constant(node.input[_TOTAL]), editor.shape(node.output[1]) if node.output[1:] else None
    if total is not None:
        present = max(past, int(total.item()))
    elif declared is not None:
        present = declared[2]
    else:
        name = node.input[_TOTAL]
        raise UnsupportedModelError(
            f"{describe_node(node)} returns caches whose length depends on '{name}'; fix that with "
            f"--bind {name}={past + shape[1]} where it is an input of the model"
        )
    return _Sizes(shape[0], shape[1], heads, groups, width, past, present)


def _positions_before(emit: Emitter, sizes: _Sizes) -> str:
    """How many positions of the cache are before the new ones, [batch, 1]; none of a first prompt."""
    lengths, total = (emit.node.input[index] for index in (_LENGTHS, _TOTAL))
    column = emit("Reshape", lengths, emit.constant([sizes.batch, 1], "column"), part="lengths")
    wide = emit("Cast", column, part="lengths", to=TensorProto.INT64)
    before = emit("Sub", wide, emit.constant([sizes.length - 1], "new"), part="before")
    whole = emit("Cast", total, part="total", to=TensorProto.INT64)
    is_first = emit("Equal", whole, emit.constant([sizes.length], "length"), part="is_first")
    return emit("Where", is_first, emit.constant([0], "none"), before, part="positions_before")


def _operands(emit: Emitter, sizes: _Sizes) -> tuple[str, str, str]:
    """Queries, keys and values, [batch, length, heads, width of a head] each."""
    names = [optional_input(emit.node, index) for index in range(3)]
    counts = (sizes.heads, sizes.groups, sizes.groups)
    if not names[_KEY]:
        parts = emit.constant([count * sizes.width for count in counts], "sizes")
        names = list(emit.many("Split", names[0], parts, part="unpack", outputs=("", "", ""), axis=-1))
    shapes = [emit.constant([sizes.batch, sizes.length, count, sizes.width], "heads") for count in counts]
    query, key, value = (emit("Reshape", *pair, part="heads") for pair in zip(names, shapes, strict=True))
    return query, key, value


def _angles(emit: Emitter, sizes: _Sizes, before: str) -> tuple[str, str]:
    """Cosines and sines of the new positions, [batch, length, 1, half]."""
    steps = emit.constant(np.arange(sizes.length, dtype=np.int64)[None], "steps")
    given = optional_input(emit.node, _POSITIONS)
    positions = given or emit("Add", before, steps, part="positions")
    axes = emit.constant([2], "per_head")
    tables = [emit("Gather", emit.node.input[index], positions, part="angles", axis=0) for index in (_COSINES, _SINES)]
    cosine, sine = (emit("Unsqueeze", table, axes, part="per_head") for table in tables)
    return cosine, sine


def _turned(emit: Emitter, value: str, angles: tuple[str, str], sizes: _Sizes, count: int) -> str:
    """Rotary embedding (Su et al. 2021, section 3.4) of the first elements of each head, as many as the tables have."""
    table = emit.editor.shape(emit.node.input[_COSINES]) or (0, sizes.width // 2)
    width, rest = 2 * table[1], ""
    if width < sizes.width:
        parts = emit.constant([width, sizes.width - width], "sizes")
        value, rest = emit.many("Split", value, parts, part="split", outputs=("", ""), axis=-1)
    is_interleaved = bool(attributes(emit.node).get("rotary_interleaved"))
    shape = [sizes.batch, sizes.length, count, width]
    value = turned_pairs(emit, value, angles, shape, is_interleaved=is_interleaved)
    return emit("Concat", value, rest, part="join", axis=-1) if rest else value


def _cached(emit: Emitter, sizes: _Sizes, before: str, new: str, past: str, part: str) -> str:
    """The cache with the new positions, [batch, heads, positions, width of a head]; zeros behind these."""
    rows = np.arange(sizes.present, dtype=np.int64)[None]
    new_rows = emit("Sub", emit.constant(rows, "positions"), before, part=f"{part}_new_rows")
    last = emit.constant([sizes.length - 1], "last")
    inside = emit("Max", emit("Min", new_rows, last, part=part), emit.constant([0], "first"), part=f"{part}_inside")
    offsets = np.arange(sizes.batch, dtype=np.int64)[:, None] * sizes.length
    places = emit("Add", inside, emit.constant(offsets, "sequences"), part=f"{part}_places")
    flat = emit.constant([sizes.batch * sizes.length, sizes.groups, sizes.width], "rows")
    moved = emit("Gather", emit("Reshape", new, flat, part=f"{part}_flat"), places, part=f"{part}_moved", axis=0)
    moved = emit("Transpose", moved, part=f"{part}_by_head", perm=[0, 2, 1, 3])
    zero, length = emit.constant([0], "zero"), emit.constant([sizes.length], "length")
    is_behind_past = emit("GreaterOrEqual", new_rows, zero, part=f"{part}_from_first")
    is_new = emit("And", is_behind_past, emit("Less", new_rows, length, part=f"{part}_to_last"), part=f"{part}_is_new")
    column = emit.constant([sizes.batch, 1, sizes.present, 1], "column")
    none = emit.like(0.0, emit.node.input[0], "nothing")
    old = none
    if past:
        is_old = emit("Reshape", emit("Less", new_rows, zero, part=f"{part}_is_old"), column, part=part)
        old = emit("Where", is_old, _lengthened(emit, sizes, past), none, part=f"{part}_old")
    return emit("Where", emit("Reshape", is_new, column, part=part), moved, old, part=part)


def _lengthened(emit: Emitter, sizes: _Sizes, past: str) -> str:
    """The given cache, with zeros behind it."""
    missing = sizes.present - sizes.past
    if not missing:
        return past
    shape = (sizes.batch, sizes.groups, missing, sizes.width)
    zeros = emit.constant(np.zeros(shape, emit.dtype(emit.node.input[0])), "behind")
    return emit("Concat", past, zeros, part="longer", axis=2)


def _attend(emit: Emitter, sizes: _Sizes, before: str, query: str, keys: str, values: str) -> None:
    """``softmax(q k^T * scale + bias) v``; the heads of a group are rows of one product with its keys."""
    node, source, settings = emit.node, emit.node.input[0], attributes(emit.node)
    rows = sizes.heads // sizes.groups * sizes.length
    by_head = emit("Transpose", query, part="queries_by_head", perm=[0, 2, 1, 3])
    grouped = emit.constant([sizes.batch, sizes.groups, rows, sizes.width], "grouped")
    turned = emit("Transpose", keys, part="turn_keys", perm=[0, 1, 3, 2])
    scores = emit("MatMul", emit("Reshape", by_head, grouped, part="group"), turned, part="scores")
    scale = settings.get("scale") or 1 / math.sqrt(sizes.width)
    scores = emit("Mul", scores, emit.like(scale, source, "scale"), part="scale")
    if softcap := settings.get("softcap"):
        cap = emit.like(softcap, source, "softcap")
        bent = emit("Tanh", emit("Div", scores, cap, part="below_cap"), part="bend")
        scores = emit("Mul", bent, cap, part="softcap")
    whole = emit.constant([sizes.batch, sizes.heads, sizes.length, sizes.present], "whole")
    scores = emit("Reshape", scores, whole, part="by_query")
    if bias := optional_input(node, _BIAS):
        scores = emit("Add", scores, bias, part="bias")
    limits: Any = ml_dtypes.finfo(emit.dtype(source))  # type: ignore[no-untyped-call]
    least = emit.like(float(limits.min), source, "least")
    scores = emit("Where", _visible(emit, sizes, before), scores, least, part="visible")
    weights = emit(
        "Reshape",
        _softmax(emit, sizes, scores),
        emit.constant([sizes.batch, sizes.groups, rows, sizes.present], "by_group"),
        part="by_group",
    )
    context = emit("MatMul", weights, values)
    heads = emit.constant([sizes.batch, sizes.heads, sizes.length, sizes.width], "by_head")
    merged = emit("Transpose", emit("Reshape", context, heads, part="ungroup"), part="merge_heads", perm=[0, 2, 1, 3])
    flat = emit.constant([sizes.batch, sizes.length, sizes.heads * sizes.width], "flat")
    emit("Reshape", merged, flat, part="flatten_heads", output=node.output[0])


def _visible(emit: Emitter, sizes: _Sizes, before: str) -> str:
    """Which keys a query sees, [batch, 1, queries, keys]: those up to its own position, within the window."""
    settings = attributes(emit.node)
    column = emit("Reshape", before, emit.constant([sizes.batch, 1, 1, 1], "wide"), part="before")
    keys = emit.constant(np.arange(sizes.present, dtype=np.int64)[None, None, None], "keys")
    if not settings.get("causal", 1):
        return emit("Less", keys, emit("Add", column, emit.constant([sizes.length], "new"), part="end"), part="known")
    queries = np.arange(sizes.length, dtype=np.int64)[None, None, :, None]
    own = emit("Add", column, emit.constant(queries, "queries"), part="own_position")
    visible = emit("LessOrEqual", keys, own, part="not_after")
    window = int(settings.get("local_window_size", -1))
    if window < 0:
        return visible
    begin = emit("Sub", own, emit.constant([window], "window"), part="window")
    return emit("And", visible, emit("Greater", keys, begin, part="in_window"), part="near")


def _softmax(emit: Emitter, sizes: _Sizes, scores: str) -> str:
    """The weights of the keys; a sink takes part in the sum, and is no key."""
    settings, sink = attributes(emit.node), optional_input(emit.node, _SINK)
    if not sink and int(settings.get("smooth_softmax", 0)) <= 0:
        return emit("Softmax", scores, part="softmax", axis=-1)
    source = emit.node.input[0]
    name = sink or emit.constant(np.zeros(sizes.heads, emit.dtype(source)), "smooth")
    column = emit("Reshape", name, emit.constant([1, sizes.heads, 1, 1], "sink"), part="sink")
    shape = emit.constant([sizes.batch, sizes.heads, sizes.length, 1], "sinks")
    joined = emit("Concat", scores, emit("Expand", column, shape, part="sinks"), part="with_sink", axis=-1)
    weights = emit("Softmax", joined, part="softmax", axis=-1)
    bounds = [emit.constant([value], "bound") for value in (0, sizes.present, 3)]
    return emit("Slice", weights, *bounds, part="without_sink")


GROUPED_ATTENTION: Mapping[str, Lowering] = {"GroupQueryAttention": _group_query_attention}

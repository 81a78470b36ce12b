"""Lowers ONNX Runtime's fused attention operators to MatMul, Softmax and reshapes.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering


@dataclass(frozen=True)
class _Heads:
    """Sizes of one attention.

    Attributes:
        batch: number of sequences.
        length, key_length: number of queries, and of keys with the past ones.
        count: number of heads.
        key_width, value_width: of a head.
        past: number of past keys.
    """

    batch: int
    length: int
    key_length: int
    count: int
    key_width: int
    value_width: int
    past: int = 0


def _attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``Attention(input, weights, bias, mask_index, past, attention_bias)``; input is [batch, length, width].

    Past and present are [2, batch, heads, positions, width of a head], of keys and of values.
    """
    shape, weights = editor.shape(node.input[0]), editor.shape(node.input[1])
    past = optional_input(node, 4)
    if shape is None or weights is None or (past and editor.shape(past) is None):
        return None
    settings = attributes(node)
    _refuse(node, editor, (6,), ("do_rotary", "past_present_share_buffer"), 2)
    count, before = int(settings["num_heads"]), (editor.shape(past) or (0,) * 4)[3] if past else 0
    sizes = [int(size) for size in settings.get("qkv_hidden_sizes") or [weights[1] // 3] * 3]
    heads = _Heads(shape[0], shape[1], before + shape[1], count, sizes[0] // count, sizes[2] // count, before)
    emit = Emitter(editor, node)
    projected = emit("MatMul", node.input[0], node.input[1], part="project")
    if bias := optional_input(node, 2):
        projected = emit("Add", projected, bias, part="bias")
    split = emit.constant(sizes, "sizes")
    query, key, value = emit.many("Split", projected, split, part="split", outputs=("", "", ""), axis=-1)
    mask = _mask(emit, optional_input(node, 3), heads)
    cache = _halves(emit, past, 0, "past") if past else ("", "")
    present = _returned(node, editor, 1)
    kept = _attend(emit, (query, key, value), heads, [mask, optional_input(node, 5)], cache, is_returned=bool(present))
    if present:
        raised = [emit("Unsqueeze", part, emit.constant([0], "pair"), part="pair") for part in kept]
        emit("Concat", *raised, part="present", output=present, axis=0)
    return emit.nodes


def _multi_head_attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value)``.

    Queries are [batch, length, width], and so are keys and values; or [batch, heads, length, width of a head]; or they
    are packed: [batch, length, heads, 3 or 2, width of a head] of all three, or of the last two. Past and present are
    [batch, heads, positions, width of a head].
    """
    if any(name and editor.shape(name) is None for name in node.input[:3]):
        return None
    past = (optional_input(node, 6), optional_input(node, 7))
    if any(name and editor.shape(name) is None for name in past):
        return None
    _refuse(node, editor, (8, 9), (), 3)
    emit, count = Emitter(editor, node), int(attributes(node)["num_heads"])
    operands, shapes = _unpacked(emit, count)
    (batch, length, width), key, value = shapes
    before = (editor.shape(past[0]) or (0, 0, 0))[2] if past[0] else 0
    heads = _Heads(batch, length, before + key[1], count, width // count, value[2] // count, before)
    if bias := optional_input(node, 3):
        split = emit.constant([width, key[2], value[2]], "sizes")
        parts = emit.many("Split", bias, split, part="split_bias", outputs=("", "", ""), axis=0)
        operands = [emit("Add", name, part, part="bias") for name, part in zip(operands, parts, strict=True)]
    mask = _mask(emit, optional_input(node, 4), heads)
    present = [_returned(node, editor, index) for index in (1, 2)]
    triple = (operands[0], operands[1], operands[2])
    kept = _attend(emit, triple, heads, [mask, optional_input(node, 5)], past, is_returned=any(present))
    for name, output in zip(kept, present, strict=True):
        if output:
            emit("Identity", name, part="present", output=output)
    return emit.nodes


def _unpacked(emit: Emitter, count: int) -> tuple[list[str], list[tuple[int, ...]]]:
    """Queries, keys and values, [batch, length, width] each, and their shapes.

    Raises:
        UnsupportedModelError: they are in none of the forms of the operator.
    """
    node, editor = emit.node, emit.editor
    given = [optional_input(node, index) for index in range(3)]
    shapes = [editor.shape(name) or () for name in given]
    if len(shapes[0]) == 5 and not given[1]:
        parts, last = _parts(emit, given[0], 3), shapes[0]
        return parts, [(*last[:2], last[2] * last[4])] * 3
    if len(shapes[1]) == 5 and not given[2]:
        parts, last = _parts(emit, given[1], 2), shapes[1]
        return [given[0], *parts], [shapes[0], *[(*last[:2], last[2] * last[4])] * 2]
    if len(shapes[1]) == len(shapes[2]) == 4:
        for index in (1, 2):
            batch, _, length, width = shapes[index]
            turned = emit("Transpose", given[index], part="length_first", perm=[0, 2, 1, 3])
            shapes[index] = (batch, length, count * width)
            given[index] = emit("Reshape", turned, emit.constant([*shapes[index]], "flat"), part="flat")
    if any(len(shape) != 3 for shape in shapes):
        raise UnsupportedModelError(
            f"{describe_node(node)} has operands of ranks {[len(shape) for shape in shapes]}; three of 3, keys and "
            "values of 4, or packed ones of 5 were expected"
        )
    return given, shapes


def _parts(emit: Emitter, packed: str, count: int) -> list[str]:
    """The parts of [batch, length, heads, count, width of a head] as [batch, length, width]."""
    shape = emit.editor.shape(packed) or ()
    ones = emit.constant([1] * count, "ones")
    parts = emit.many("Split", packed, ones, part="unpack", outputs=("",) * count, axis=3)
    flat = emit.constant([*shape[:2], shape[2] * shape[4]], "flat")
    return [emit("Reshape", part, flat, part="flat") for part in parts]


def _halves(emit: Emitter, pair: str, axis: int, part: str) -> tuple[str, str]:
    """The two parts of a pair along an axis, without that."""
    ones, axes = emit.constant([1, 1], "ones"), emit.constant([axis], "axis")
    first, second = emit.many("Split", pair, ones, part=part, outputs=("", ""), axis=axis)
    return emit("Squeeze", first, axes, part=part), emit("Squeeze", second, axes, part=part)


def _returned(node: NodeProto, editor: GraphEditor, index: int) -> str:
    """The name of a result that somebody reads; empty if there is none."""
    name = node.output[index] if index < len(node.output) else ""
    return name if name and (editor.consumers(name) or editor.is_output(name)) else ""


def _refuse(
    node: NodeProto, editor: GraphEditor, inputs: tuple[int, ...], flags: tuple[str, ...], results: int
) -> None:
    """Refuse a node that writes into a buffer of past keys and values, or returns more than ``results`` results."""
    settings = attributes(node)
    more = any(_returned(node, editor, index) for index in range(results, len(node.output)))
    if more or any(optional_input(node, index) for index in inputs) or any(settings.get(flag) for flag in flags):
        raise UnsupportedModelError(
            f"{describe_node(node)} writes into a buffer of past keys and values, or returns its scores, which is not "
            "supported; export the model without ONNX Runtime's attention fusion"
        )


def _attend(
    emit: Emitter,
    operands: tuple[str, str, str],
    heads: _Heads,
    addends: list[str],
    past: tuple[str, str],
    *,
    is_returned: bool,
) -> tuple[str, str]:
    """``softmax(q k^T * scale + addends) v`` per head (Vaswani et al. 2017, section 3.2).

    Returns:
        Keys and values [batch, heads, positions, width of a head] with the past ones, where these are asked for.
    """
    source, new = emit.node.input[0], heads.key_length - heads.past
    scale = attributes(emit.node).get("scale") or 1 / math.sqrt(heads.key_width)
    query = _per_head(
        emit, operands[0], "query", (heads.batch, heads.length, heads.count, heads.key_width), [0, 2, 1, 3]
    )
    is_kept = is_returned or bool(past[0])
    order = [0, 2, 1, 3] if is_kept else [0, 2, 3, 1]
    key = _per_head(emit, operands[1], "key", (heads.batch, new, heads.count, heads.key_width), order)
    value = _per_head(emit, operands[2], "value", (heads.batch, new, heads.count, heads.value_width), [0, 2, 1, 3])
    if past[0]:
        key = emit("Concat", past[0], key, part="keys", axis=2)
        value = emit("Concat", past[1], value, part="values", axis=2)
    turned = emit("Transpose", key, part="turn_keys", perm=[0, 1, 3, 2]) if is_kept else key
    scores = emit("MatMul", query, turned, part="scores")
    scores = emit("Mul", scores, emit.like(scale, source, "scale"), part="scale")
    for addend in addends:
        if addend:
            scores = emit("Add", scores, addend, part="mask")
    context = emit("MatMul", emit("Softmax", scores, part="softmax", axis=-1), value)
    merged = emit("Transpose", context, part="merge_heads", perm=[0, 2, 1, 3])
    target = emit.constant([heads.batch, heads.length, heads.count * heads.value_width], "shape")
    emit("Reshape", merged, target, part="flatten_heads", output=emit.node.output[0])
    return key, value


def _per_head(emit: Emitter, name: str, part: str, shape: tuple[int, ...], order: list[int]) -> str:
    split = emit("Reshape", name, emit.constant(list(shape), f"{part}_shape"), part=f"{part}_heads")
    return emit("Transpose", split, part=f"{part}_transpose", perm=order)


def _causal(emit: Emitter, mask: str, heads: _Heads) -> str:
    """What is added to the scores, with the least number there is for each key after the query, whatever the mask adds.

    A single query has no keys after it. ONNX Runtime excludes none for the last of several either, even where there are
    more keys than queries; which keys were meant then is not known.

    Raises:
        UnsupportedModelError: there are more keys than queries, and several of these.
    """
    if heads.length == 1:
        return mask
    if heads.key_length - heads.past > heads.length:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} is unidirectional over {heads.key_length} keys for {heads.length} queries; "
            "as many keys as queries were expected"
        )
    source = emit.node.input[0]
    future = np.triu(np.ones((heads.length, heads.key_length), np.bool_), k=1 + heads.past)
    limits: Any = ml_dtypes.finfo(emit.dtype(source))  # type: ignore[no-untyped-call]
    least = emit.like(float(limits.min), source, "least")
    return emit("Where", emit.constant(future, "future"), least, mask or emit.like(0.0, source, "none"), part="causal")


def _excluded(emit: Emitter) -> float:
    value = float(attributes(emit.node).get("mask_filter_value", -10000.0))
    smallest: Array = np.asarray(np.finfo(np.float16).min if emit.dtype(emit.node.input[0]) == np.float16 else value)
    return max(value, float(smallest))


def _mask(emit: Emitter, given: str, heads: _Heads) -> str:
    """A value to add to the scores, which excludes keys by a mask, and if it is unidirectional those after a query."""
    padding = _padding(emit, given, heads)
    return _causal(emit, padding, heads) if attributes(emit.node).get("unidirectional") else padding


def _padding(emit: Emitter, mask: str, heads: _Heads) -> str:
    """A value to add to the scores, [batch, 1, 1 or queries, keys]; from a mask, or from ends of the valid positions.

    Positions with numbers above 0 are valid, and those before an end that do not come before a start.
    """
    if not mask:
        return ""
    shape, source = emit.editor.shape(mask) or (), emit.node.input[0]
    if shape == (heads.batch,) or (shape == (2 * heads.batch,) and emit.node.op_type == "Attention"):
        valid = _between(emit, mask, heads, has_starts=shape != (heads.batch,))
    elif len(shape) in (2, 3) and shape[-1] == heads.key_length:
        valid = emit("Greater", mask, emit.like(0, mask, "nothing"), part="valid")
    else:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a mask of shape {list(shape)}; "
            f"[{heads.batch}], [{heads.batch}, {heads.key_length}] or a matrix of these was expected"
        )
    excluded = emit.like(_excluded(emit), source, "excluded")
    addend = emit("Where", valid, emit.like(0.0, source, "kept"), excluded, part="excluded")
    axes = [1] if len(shape) == 3 else [1, 2]
    return emit("Unsqueeze", addend, emit.constant(axes, "mask_axes"), part="mask_align")


def _between(emit: Emitter, bounds: str, heads: _Heads, *, has_starts: bool) -> str:
    """Whether each position, [batch, keys], comes before its sequence's end and, if there are starts, not before that.

    ``bounds`` has the ends of all sequences and then their starts.
    """
    positions = emit.constant(np.arange(heads.key_length, dtype=np.int32)[None], "positions")
    columns = emit("Reshape", bounds, emit.constant([-1, heads.batch, 1], "columns"), part="bounds")
    ends = emit("Gather", columns, emit.constant(0, "ends_index", np.int64), part="ends", axis=0)
    before = emit("Less", positions, ends, part="before_end")
    if not has_starts:
        return before
    starts = emit("Gather", columns, emit.constant(1, "starts_index", np.int64), part="starts", axis=0)
    return emit("And", before, emit("GreaterOrEqual", positions, starts, part="after_start"), part="between")


ATTENTION: Mapping[str, Lowering] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head_attention,
}

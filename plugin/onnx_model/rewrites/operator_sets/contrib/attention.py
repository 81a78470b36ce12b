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
    """Sizes of one attention: batch, query length, key length, heads, and the width of a key and of a value head."""

    batch: int
    length: int
    key_length: int
    count: int
    key_width: int
    value_width: int


def _attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``Attention(input, weights, bias, mask_index, past, attention_bias)``; input is [batch, length, width]."""
    shape, weights = editor.shape(node.input[0]), editor.shape(node.input[1])
    if shape is None or weights is None:
        return None
    found = attributes(node)
    _refuse(node, editor, (4, 6), ("do_rotary", "past_present_share_buffer"))
    count = int(found["num_heads"])
    sizes = [int(size) for size in found.get("qkv_hidden_sizes") or [weights[1] // 3] * 3]
    heads = _Heads(shape[0], shape[1], shape[1], count, sizes[0] // count, sizes[2] // count)
    emit = Emitter(editor, node)
    projected = emit("MatMul", node.input[0], node.input[1], part="project")
    if bias := optional_input(node, 2):
        projected = emit("Add", projected, bias, part="bias")
    split = emit.constant(sizes, "sizes")
    query, key, value = emit.many("Split", projected, split, part="split", outputs=("", "", ""), axis=-1)
    mask = _mask(emit, optional_input(node, 3), heads)
    _attend(emit, (query, key, value), heads, [mask, optional_input(node, 5)])
    return emit.nodes


def _multi_head_attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias)``, all [batch, length, width]."""
    shapes = [editor.shape(optional_input(node, index)) for index in range(3)]
    if any(shape is None for shape in shapes):
        return None
    query, key, value = (shape or () for shape in shapes)
    if not len(query) == len(key) == len(value) == 3:
        raise UnsupportedModelError(f"{describe_node(node)} has packed operands; [batch, length, width] was expected")
    found = attributes(node)
    _refuse(node, editor, (6, 7, 8, 9), ())
    count = int(found["num_heads"])
    heads = _Heads(query[0], query[1], key[1], count, query[2] // count, value[2] // count)
    emit = Emitter(editor, node)
    operands = [node.input[0], node.input[1], node.input[2]]
    if bias := optional_input(node, 3):
        split = emit.constant([query[2], key[2], value[2]], "sizes")
        parts = emit.many("Split", bias, split, part="split_bias", outputs=("", "", ""), axis=0)
        operands = [emit("Add", name, part, part="bias") for name, part in zip(operands, parts, strict=True)]
    mask = _mask(emit, optional_input(node, 4), heads)
    _attend(emit, (operands[0], operands[1], operands[2]), heads, [mask, optional_input(node, 5)])
    return emit.nodes


def _refuse(node: NodeProto, editor: GraphEditor, inputs: tuple[int, ...], flags: tuple[str, ...]) -> None:
    """Refuse a node that reads or returns past keys and values."""
    found = attributes(node)
    present = any(name and (editor.consumers(name) or editor.is_output(name)) for name in node.output[1:])
    if present or any(optional_input(node, index) for index in inputs) or any(found.get(flag) for flag in flags):
        raise UnsupportedModelError(
            f"{describe_node(node)} keeps past keys and values, which is not supported; "
            "export the model without ONNX Runtime's attention fusion"
        )


def _attend(emit: Emitter, operands: tuple[str, str, str], heads: _Heads, addends: list[str]) -> None:
    """``softmax(q k^T * scale + addends) v`` per head (Vaswani et al. 2017, section 3.2)."""
    source = emit.node.input[0]
    scale = attributes(emit.node).get("scale") or 1 / math.sqrt(heads.key_width)
    query = _per_head(
        emit, operands[0], "query", (heads.batch, heads.length, heads.count, heads.key_width), [0, 2, 1, 3]
    )
    key = _per_head(
        emit, operands[1], "key", (heads.batch, heads.key_length, heads.count, heads.key_width), [0, 2, 3, 1]
    )
    value = _per_head(
        emit,
        operands[2],
        "value",
        (heads.batch, heads.key_length, heads.count, heads.value_width),
        [0, 2, 1, 3],
    )
    scores = emit("MatMul", query, key, part="scores")
    scores = emit("Mul", scores, emit.like(scale, source, "scale"), part="scale")
    for addend in addends:
        if addend:
            scores = emit("Add", scores, addend, part="mask")
    context = emit("MatMul", emit("Softmax", scores, part="softmax", axis=-1), value)
    merged = emit("Transpose", context, part="merge_heads", perm=[0, 2, 1, 3])
    target = emit.constant([heads.batch, heads.length, heads.count * heads.value_width], "shape")
    emit("Reshape", merged, target, part="flatten_heads", output=emit.node.output[0])


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
    if heads.key_length > heads.length:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} is unidirectional over {heads.key_length} keys for {heads.length} queries; "
            "as many keys as queries were expected"
        )
    source = emit.node.input[0]
    future = np.triu(np.ones((heads.length, heads.key_length), np.bool_), k=1)
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

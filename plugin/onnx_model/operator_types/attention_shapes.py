"""Shapes of the results of ONNX Runtime's layers of transformers, and of its recurrent ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sartor.onnx_model.operator_types.operands import Operands, Rule, Shape, Size, times, total


def _per_head(width: Size, heads: int) -> Size:
    return width // heads if isinstance(width, int) and heads else None


def _attention(past_index: int) -> Rule:
    """The rule of attention with its projection; present is [2, batch, heads, past and new positions, head width]."""

    def rule(operands: Operands) -> list[Shape]:
        shape, weights, past = operands.shape(0), operands.shape(1), operands.shape(past_index)
        if shape is None or weights is None or len(shape) != 3:
            return [None]
        heads = int(operands.attribute("num_heads", 0))
        given = operands.attribute("qkv_hidden_sizes")
        width: Size = int(given[2]) if given else _per_head(weights[-1], 3)
        length = total(past[3], shape[1]) if past and len(past) == 5 else shape[1]
        return [[shape[0], shape[1], width], [2, shape[0], heads, length, _per_head(width, heads)]]

    return rule


def _multi_head_attention(operands: Operands) -> list[Shape]:
    """Keys and values may be packed into the query, or [batch, heads, length, width of a head]."""
    query, key, value = (operands.shape(index) for index in range(3))
    if query is None:
        return [None]
    heads = int(operands.attribute("num_heads", 0))
    if len(query) == 5:
        return [[query[0], query[1], times(query[2], query[4])]]
    if key is not None and len(key) == 5:
        return [[query[0], query[1], times(key[2], key[4])]]
    if value is not None and len(value) == 4:
        return [[query[0], query[1], times(value[1], value[3])]]
    width = value[-1] if value is not None else query[-1]
    past, length = operands.shape(6), (key or query)[1]
    if past is not None and len(past) == 4:
        length = total(past[2], length)
    present: list[Size] = [query[0], heads, length]
    return [
        [*query[:2], width],
        [*present, _per_head(query[-1], heads)],
        [*present, _per_head(width, heads)],
    ]


def _decoder_masked_attention(operands: Operands) -> list[Shape]:
    """Of one token: the result, and the buffers, or caches with its position."""
    query, key, past = operands.shape(0), operands.shape(1), operands.shape(5)
    if query is None:
        return [None]
    width = _per_head(query[-1], 3) if key is None else query[-1]
    cache = past
    if past is not None and not operands.attribute("past_present_share_buffer", 0):
        cache = [*past[:2], total(past[2], 1), past[3]]
    return [[*query[:2], width], cache, cache]


def _group_query_attention(operands: Operands) -> list[Shape]:
    """Keys and values may be packed behind the query; caches are as long as the longer of the given and the total."""
    query, key, past, whole = operands.shape(0), operands.shape(1), operands.shape(3), operands.values(6)
    heads, groups = (int(operands.attribute(name, 0)) for name in ("num_heads", "kv_num_heads"))
    if query is None or len(query) != 3:
        return [None]
    head = _per_head(query[2], heads if key is not None else heads + 2 * groups)
    before: Size = past[2] if past is not None and len(past) == 4 else 0
    is_known = isinstance(before, int) and whole is not None and whole.size == 1
    length = max(int(before or 0), int(np.asarray(whole).item())) if is_known else None
    cache: list[Size] = [query[0], groups, length, head]
    return [[*query[:2], times(head, heads)], cache, cache]


def _embedding(operands: Operands) -> list[Shape]:
    """Of both embeddings with normalisation: the result, the counts of the mask, and the sum before."""
    ids, table = operands.shape(0), operands.shape(2)
    if ids is None or table is None:
        return [None]
    result = [*ids, table[-1]]
    return [result, ids[:1], result]


def _lstm(operands: Operands) -> list[Shape]:
    """Of a DynamicQuantizeLSTM: as the standard's."""
    value = operands.shape(0)
    if value is None:
        return [None]
    hidden = operands.attribute("hidden_size")
    directions = 2 if operands.attribute("direction", "forward") == "bidirectional" else 1
    state: list[Size] = [directions, value[1], hidden]
    return [[value[0], directions, value[1], hidden], state, state]


ATTENTION_SHAPES: Mapping[str, Rule] = {
    "Attention": _attention(past_index=4),
    "DecoderMaskedMultiHeadAttention": _decoder_masked_attention,
    "DynamicQuantizeLSTM": _lstm,
    "EmbedLayerNormalization": _embedding,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _attention(past_index=8),
    "QEmbedLayerNormalization": _embedding,
}

"""ONNX Runtime's attention where its operands are packed, which its CPU kernel does not take."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded, softmax
from sartor.runtime.driver.signature import Array

_ADDEND = 5
_REST = (3, 4, 6, 7, 8, 9)


def is_packed(node: NodeProto) -> bool:
    """Whether a MultiHeadAttention lacks keys or values of their own, or both."""
    return not all(index < len(node.input) and node.input[index] for index in (1, 2))


def packed_attention(call: Call) -> list[Array]:
    """MultiHeadAttention of [batch, length, heads, 3, size], or of queries and [batch, length, heads, 2, size].

    Raises:
        ValueError: the node has a bias, a mask or past keys, which its schema gives to no packed operands.
    """
    if any(call.input(index) is not None for index in _REST):
        raise ValueError("packed attention has a bias, a mask or past keys")
    if call.input(1) is None:
        packed = call.wide(0)
        query, key, value = (packed[:, :, :, part] for part in range(3))
    else:
        flat, packed = call.wide(0), call.wide(1)
        query = flat.reshape(*flat.shape[:2], call.whole("num_heads", 0), -1)
        key, value = packed[:, :, :, 0], packed[:, :, :, 1]
    scale = call.number("scale", 0.0) or 1 / math.sqrt(query.shape[-1])
    scores = np.einsum("bihd,bjhd->bhij", query, key) * scale + call.wide_or(_ADDEND, 0.0)
    if call.whole("unidirectional", 0):
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    result = np.einsum("bhij,bjhd->bihd", softmax(scores), value)
    return [rounded(result.reshape(*result.shape[:2], -1), call.given(0))]

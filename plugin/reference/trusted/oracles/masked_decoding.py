"""ONNX Runtime's attention of one token, in the forms that its CPU kernel does not take or computes otherwise."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded, softmax
from sartor.runtime.driver.signature import Array

_KEY, _MASK, _ADDEND, _PAST, _LENGTH, _ORIGINS, _BIAS = 1, 3, 4, 5, 7, 9, 10


def deviates(node: NodeProto) -> bool:
    """Whether operands are packed, caches grow, or something is added to the scores of beams."""
    given = {index for index, name in enumerate(node.input) if name}
    is_shared = any(option.name == "past_present_share_buffer" and option.i for option in node.attribute)
    return _KEY not in given or (_PAST in given and not is_shared) or {_ADDEND, _ORIGINS} <= given


def masked_decoding(call: Call) -> list[Array]:
    """DecoderMaskedMultiHeadAttention over a buffer of keys and values, or caches that grow.

    Raises:
        ValueError: the node has no past keys.
    """
    heads, query = call.whole("num_heads", 0), call.wide(0)
    flat = [query[:, 0], *(call.wide(index)[:, 0] for index in (1, 2))] if call.input(_KEY) is not None else None
    operands = np.split(query[:, 0], 3, axis=-1) if flat is None else flat
    if call.input(_BIAS) is not None:
        operands = [operand + part for operand, part in zip(operands, np.split(call.wide(_BIAS), 3), strict=True)]
    batch, width = len(query), operands[0].shape[-1]
    query, *new = (operand.reshape(batch, heads, -1) for operand in operands)
    is_shared, presents = call.whole("past_present_share_buffer", 0), list[Array]()
    for index, row in enumerate(new):
        past = call.wide(_PAST + index)
        before = int(call.given(_LENGTH).item()) if is_shared else past.shape[2]
        present = past.copy() if is_shared else np.concatenate([past, past[:, :, :1] * 0], axis=2)
        present[:, :, before] = row
        presents.append(present)
    result = np.zeros((batch, heads, width // heads))
    for sequence in range(batch):
        keys, values = (_of_beam(call, sequence, before, present) for present in presents)
        scores = np.einsum("hd,hjd->hj", query[sequence], keys)
        scores *= call.number("scale", 0.0) or 1 / math.sqrt(width // heads)
        if (addend := call.input(_ADDEND)) is not None:
            counted = addend[..., : before + 1].astype(np.float64)
            whole = np.broadcast_to(counted, (batch, heads, 1, before + 1))
            scores += whole[sequence, :, 0]
        if (mask := call.input(_MASK)) is not None:
            scores += np.where(mask[sequence, : before + 1] > 0, 0.0, call.number("mask_filter_value", -10000.0))
        result[sequence] = np.einsum("hj,hjd->hd", softmax(scores), values)
    kind = call.given(0)
    return [rounded(array, kind) for array in (result.reshape(batch, 1, width), *presents)]


def _of_beam(call: Call, sequence: int, before: int, present: Array) -> Array:
    """The live keys or values of a sequence, [heads, positions, width], some of them of other beams of its search."""
    live: Array = present[sequence, :, : before + 1].copy()
    origins = call.input(_ORIGINS)
    if origins is not None:
        beams = origins.shape[1]
        search, beam = divmod(sequence, beams)
        for position in range(before):
            live[:, position] = present[search * beams + origins[search, beam, position], :, position]
    return live

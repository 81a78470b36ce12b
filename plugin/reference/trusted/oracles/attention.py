"""Attention of the standard, from ONNX's text of opsets 23 and 24."""

from __future__ import annotations

import math

import numpy as np

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded, softmax
from sartor.runtime.driver.signature import Array

# Modes of the output of scores: as multiplied, capped, masked too, and after the softmax.
_CAPPED, _MASKED, _NORMALISED = 1, 2, 3


def attention(call: Call) -> list[Array]:
    """The result, the keys and values with those of the past, and the scores as the mode wants them."""
    query, key, value = (_heads(call, index) for index in range(3))
    keys, values = (_after_past(new, call.input(index)) for new, index in ((key, 4), (value, 5)))
    shared = query.shape[1] // keys.shape[1]
    wide = [np.repeat(array.astype(np.float64), shared, axis=1) for array in (keys, values)]
    scale = call.number("scale", 1 / math.sqrt(query.shape[-1]))
    scores = scale * (query.astype(np.float64) @ wide[0].swapaxes(-1, -2))
    capped = _capped(scores, call.number("softcap", 0.0))
    masked = capped + _bias(call, scores.shape)
    shares = softmax(masked)
    result = shares @ wide[1]
    if call.given(0).ndim == 3:
        result = result.swapaxes(1, 2).reshape(*call.given(0).shape[:2], -1)
    stages = {_CAPPED: capped, _MASKED: masked, _NORMALISED: shares}
    shown = stages.get(call.whole("qk_matmul_output_mode", 0), scores)
    like = call.given(0)
    return [rounded(result, like), keys, values, rounded(shown, like)]


def _heads(call: Call, index: int) -> Array:
    """An operand as [batch, heads, length, size]."""
    operand = call.given(index)
    if operand.ndim == 4:
        return operand
    count = call.whole("q_num_heads" if index == 0 else "kv_num_heads", 1)
    batch, length, _ = operand.shape
    return operand.reshape(batch, length, count, -1).swapaxes(1, 2)


def _after_past(new: Array, past: Array | None) -> Array:
    return new if past is None else np.concatenate([past, new], axis=2)


def _capped(scores: Array, cap: float) -> Array:
    return cap * np.tanh(scores / cap) if cap else scores


def _bias(call: Call, shape: tuple[int, ...]) -> Array:
    """What is added to scores: the mask, minus infinity for what may not be attended."""
    bias, mask = np.zeros(shape), call.input(3)
    if mask is not None:
        real = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask.astype(np.float64)
        missing = [(0, 0)] * (real.ndim - 1) + [(0, shape[-1] - real.shape[-1])]
        bias = bias + np.pad(real, missing, constant_values=-np.inf)
    valid, past = call.input(6), call.input(4)
    columns, rows = np.arange(shape[-1]), np.arange(shape[-2])[:, None]
    offset = np.asarray(0 if past is None else past.shape[2])
    if valid is not None:
        counts = valid.reshape(-1, 1, 1, 1)
        bias = np.where(columns < counts, bias, -np.inf)
        offset = counts - shape[-2] if past is None else offset
    return np.where(columns <= rows + offset, bias, -np.inf) if call.whole("is_causal", 0) else bias

"""Normalisations by mean and variance. Sums are float64, and results are rounded once."""

from __future__ import annotations

import math

import numpy as np

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded, rounded_to, sigmoid
from sartor.runtime.driver.signature import Array


def _kind(call: Call, index: int) -> int | None:
    return call.types[index] if index < len(call.types) else None


def layer_normalization(call: Call) -> list[Array]:
    """LayerNormalization: the result, the mean, and one over the deviation."""
    data = call.wide(0)
    axes = tuple(range(call.whole("axis", -1) % data.ndim, data.ndim))
    mean = data.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(np.square(data - mean).mean(axes, keepdims=True) + call.number("epsilon", 1e-5))
    result = (data - mean) * inverse * call.wide(1) + call.wide_or(2, 0.0)
    statistics = [np.asarray(array).astype(np.float32) for array in (mean, inverse)]
    return [rounded_to(result, _kind(call, 0), call.given(0)), *statistics]


def simplified_layer_normalization(call: Call) -> list[Array]:
    """SimplifiedLayerNormalization: as the former without mean and bias; the result, and one over the root."""
    data = call.wide(0)
    axes = tuple(range(call.whole("axis", -1) % data.ndim, data.ndim))
    inverse = 1 / np.sqrt(np.square(data).mean(axes, keepdims=True) + call.number("epsilon", 1e-5))
    result = data * inverse * call.wide(1)
    return [rounded_to(result, _kind(call, 0), call.given(1)), np.asarray(inverse).astype(np.float32)]


def group_norm(call: Call) -> list[Array]:
    """GroupNorm of images with channels last, or first."""
    return [rounded(_by_groups(call, call.wide(0)), call.given(0))]


def skip_group_norm(call: Call) -> list[Array]:
    """SkipGroupNorm: GroupNorm of the sum of an image, a skip and a bias; the result and that sum."""
    data, skip = call.wide(0), call.wide(3)
    is_last = bool(call.whole("channels_last", 1))
    if skip.ndim == 2:
        skip = skip[:, None, None, :] if is_last else skip[:, :, None, None]
    bias = call.wide_or(4, 0.0)
    total = data + skip + (bias if is_last or not bias.ndim else bias[:, None, None])
    return [rounded(_by_groups(call, total), call.given(0)), rounded(total, call.given(0))]


def _by_groups(call: Call, data: Array) -> Array:
    """Normalised over each group of channels, then SiLU if the node has it."""
    is_last = bool(call.whole("channels_last", 1))
    image = data if is_last else np.moveaxis(data, 1, -1)
    groups = call.whole("groups", 1)
    parts = image.reshape(image.shape[0], math.prod(image.shape[1:-1]), groups, image.shape[-1] // groups)
    count = max(parts.shape[1] * parts.shape[3], 1)
    mean = parts.sum((1, 3), keepdims=True) / count
    variance = np.square(parts - mean).sum((1, 3), keepdims=True) / count
    normal = ((parts - mean) / np.sqrt(variance + call.number("epsilon", 1e-5))).reshape(image.shape)
    result = normal * call.wide(1) + call.wide(2)
    result = result * sigmoid(result) if call.whole("activation", 0) else result
    return result if is_last else np.moveaxis(result, -1, 1)

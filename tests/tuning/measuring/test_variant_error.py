"""What a variant of a layer may be off by."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from sartor.runtime.driver.signature import Array
from sartor.tuning.measuring.checking import ROUNDING, layer_scales, variant_error

F32 = 1e-3
RANDOM = np.random.default_rng(0)
# Channels of a convolution whose filters differ in size, by up to a thousand.
SIZES = np.logspace(0, -3, 16).reshape(1, 16, 1, 1)
X = RANDOM.standard_normal((1, 16, 12, 12)).astype(np.float32)
W = RANDOM.standard_normal((16, 16)).astype(np.float32) * SIZES.reshape(16, 1).astype(np.float32)


def _layer(x: Array, w: Array) -> Array:
    return np.asarray(np.maximum(np.einsum("oi,nihw->nohw", w, x), 0), np.float32)


RIGHT = _layer(X, W)


def _error(output: Array, dtype: str = "f32") -> float:
    return variant_error([output], [RIGHT], dtype, layer_scales([RIGHT]))


@pytest.mark.parametrize("channel", range(16))
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_one_wrong_channel_is_seen_however_small_it_is(channel: int, dtype: str) -> None:
    for wrong in (0.0, -1.0, 1.5):
        output = RIGHT.copy()
        output[:, channel] *= wrong
        assert _error(output, dtype) > max(F32, ROUNDING.get(dtype, 0.0))


def test_what_winograds_method_is_off_by_is_not_blamed() -> None:
    """100 units in the last place of the largest sum in a channel, as F(6x6, 3x3) may be."""
    largest = RIGHT.max(axis=(0, 2, 3), keepdims=True)
    assert _error(RIGHT + 100 * 2.0**-24 * largest * RANDOM.uniform(-1, 1, RIGHT.shape)) < F32


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_rounding_to_16_bits_is_not_blamed(dtype: str, kind: type) -> None:
    rounded = _layer(X.astype(kind).astype(np.float32), W.astype(kind).astype(np.float32))
    assert _error(rounded.astype(kind).astype(np.float32), dtype) < ROUNDING[dtype]


def test_results_in_8_bits_are_on_one_grid() -> None:
    step = RIGHT.max() / 255
    rounded = (np.rint(RIGHT / step) * step).astype(np.float32)
    assert _error(rounded, "i8") < ROUNDING["i8"]
    assert _error(rounded) > F32
    assert variant_error([], [RIGHT], "i8") == math.inf

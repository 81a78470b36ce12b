"""What products compute whose rows are quantised when they run: rounded rows and weights."""

from __future__ import annotations

import numpy as np

from sartor.codegen.ir.variants.rounding import LEAST_STEP, LEVELS, MOST_LEVELS, REACH
from sartor.runtime.driver.signature import Array

REORDERING = 1e-5
"""Sums of f32 in another order, relative to the largest result of a row."""


def rounded_rows(rows: Array, *, clipped: bool = False) -> Array:
    """In f32 up to the step, as its last bit decides many roundings."""
    sizes, reach = np.abs(rows), np.float32(REACH / rows.shape[-1])
    first = sizes.sum(-1, keepdims=True) * reach
    bound = np.where(sizes <= first, sizes, 0).sum(-1, keepdims=True) * reach
    least, most = np.minimum(rows.min(-1, keepdims=True), 0), np.maximum(rows.max(-1, keepdims=True), 0)
    low = np.maximum(least, -bound)
    fine, coarse = (np.minimum(most, bound) - low) / np.float32(LEVELS), (most - least) / np.float32(MOST_LEVELS)
    step = np.maximum(np.maximum(fine, coarse), np.float32(LEAST_STEP)).astype(np.float64)
    numbers = np.rint((rows.astype(np.float64) - low) / step)
    return np.asarray((np.clip(numbers, 0, LEVELS) if clipped else numbers) * step + low)


def rounded_weight(weight: Array) -> Array:
    scales = np.abs(weight).max(0) / 127.0
    return np.asarray(np.rint(weight / scales) * scales)

"""Products of 8-bit integers by their definition, in 64 bits and by NumPy alone; and operands that saturate 16 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.plugin.onnx_model.builders import Array

LIMITS = {"u8": (0, 255), "s8": (-128, 127)}
DTYPES = {"u8": np.uint8, "s8": np.int8}


def extreme(kind: str, *shape: int, seed: int = 0) -> Array:
    """Numbers next to both ends of a type: two products of such numbers pass 16 bits."""
    random = np.random.default_rng(seed)
    low, high = LIMITS[kind]
    near = random.integers(0, 8, shape)
    return np.where(random.random(shape) < 0.3, low + near, high - near).astype(DTYPES[kind])


def wide(values: Array, zero: Array | int = 0) -> Array:
    """What integers stand for, before scaling."""
    return np.asarray(values.astype(np.int64) - np.asarray(zero).astype(np.int64))


def convolved(image: Array, filters: Array, pads: int = 0, groups: int = 1) -> Array:
    """A convolution with step 1. The operands are those of ``wide``: [N, C, H, W] and [M, C / groups, kH, kW]."""
    count, _, height, width = image.shape
    results, channels, rows, columns = filters.shape
    padded = np.pad(image, ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    shape = (count, results, height + 2 * pads - rows + 1, width + 2 * pads - columns + 1)
    found = np.zeros(shape, np.int64)
    for result in range(results):
        first = result // (results // groups) * channels
        for row in range(shape[2]):
            for column in range(shape[3]):
                part = padded[:, first : first + channels, row : row + rows, column : column + columns]
                found[:, result, row, column] = (part * filters[result]).sum(axis=(1, 2, 3))
    return found


def rounded(numbers: Array, kind: str, zero: int) -> Array:
    """Numbers as integers of 8 bits, ties to even. The numbers are exact: sums times a power of two."""
    return np.asarray(np.clip(np.rint(numbers) + zero, *LIMITS[kind]).astype(DTYPES[kind]))


def by_channel(values: Sequence[float] | Array, rank: int, axis: int) -> Array:
    """Values of a channel each, in a shape that broadcasts over a tensor."""
    shape = [1] * rank
    shape[axis] = len(values)
    return np.asarray(values).reshape(shape)

"""Packed weights, multiplied as AMX multiplies tiles, give the convolution or product."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, Step
from sartor.codegen.kernels.amx.packing import pack_filters, pack_matrix, pack_runs
from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.isa.amx import BFLOAT
from sartor.runtime.driver.signature import Array

LANES = 4
GROUP = BFLOAT.group


def _tiling(vectors: int, depth: int) -> TileTiling:
    return TileTiling(1, 1, 1, vectors, depth, 1, 1)


def _numbers(shape: tuple[int, ...]) -> Array:
    """Different numbers, all of which bf16 has."""
    return (np.arange(np.prod(shape)) % 251 - 100).astype(np.float32).reshape(shape)


def _packed(weights: Array, steps: tuple[Step, ...]) -> Array:
    packing = Packing(steps)
    packed = packing.apply(weights)
    assert packed.dtype == np.dtype(ml_dtypes.bfloat16)
    assert packing.type_of(TensorType(weights.shape, "f32")) == TensorType(packed.shape, "bf16")
    return packed.astype(np.float32)


def _tile_product(pixels: Array, tile: Array) -> Array:
    """``sum[m, n] += a[m, 2k] b[k, 2n] + a[m, 2k + 1] b[k, 2n + 1]`` (Intel, chapter 3, TDPBF16PS)."""
    sums: Array = np.einsum("mkg,kng->mn", pixels.reshape(len(pixels), -1, GROUP), tile)
    return sums


def _chunks(runs: Array, panel: Array) -> Array:
    """Sums of a panel ``[chunk, vector, depth / group, lanes, group]`` over runs of numbers, one for each pixel."""
    chunks, vectors, pairs, _, group = panel.shape
    padded = np.zeros((len(runs), chunks * pairs * group), np.float32)
    padded[:, : runs.shape[1]] = runs
    parts = padded.reshape(len(runs), chunks, pairs * group)
    sums = [
        sum(_tile_product(parts[:, index], panel[index, vector]) for index in range(chunks))
        for vector in range(vectors)
    ]
    return np.concatenate(sums, axis=1)


@pytest.mark.parametrize(
    ("shape", "vectors", "depth"),
    [((10, 7, 3, 2), 2, 4), ((8, 8, 1, 1), 1, 8), ((3, 5, 2, 3), 3, 6), ((13, 1, 2, 2), 2, 2), ((4, 33, 1, 3), 1, 32)],
)
def test_filters_in_tiles_multiply_the_channels_of_every_tap(
    shape: tuple[int, int, int, int], vectors: int, depth: int
) -> None:
    filters = _numbers(shape)
    packed = _packed(filters, pack_filters(TensorType(shape, "f32"), _tiling(vectors, depth), LANES, BFLOAT))
    channels, inner, height, width = shape
    panels, chunks = -(-channels // (vectors * LANES)), -(-inner // depth)
    assert packed.shape == (panels, height, width, chunks, vectors, depth // GROUP, LANES, GROUP)
    pixels = _numbers((6, inner))
    for row, column in np.ndindex(height, width):
        sums = np.concatenate([_chunks(pixels, packed[panel, row, column]) for panel in range(panels)], axis=1)
        np.testing.assert_array_equal(sums[:, :channels], pixels @ filters[:, :, row, column].T)
        assert not sums[:, channels:].any()


@pytest.mark.parametrize(
    ("shape", "pixel", "vectors", "depth"),
    [((10, 3, 2, 7), 4, 2, 28), ((5, 1, 3, 3), 2, 1, 6), ((9, 5, 1, 4), 8, 3, 20), ((4, 2, 2, 5), 2, 1, 4)],
)
def test_runs_multiply_all_taps_of_a_row(
    shape: tuple[int, int, int, int], pixel: int, vectors: int, depth: int
) -> None:
    filters = _numbers(shape)
    packed = _packed(filters, pack_runs(TensorType(shape, "f32"), pixel, _tiling(vectors, depth), LANES, BFLOAT))
    channels, inner, height, width = shape
    panels, chunks = -(-channels // (vectors * LANES)), -(-width * pixel // depth)
    assert packed.shape == (panels, height, chunks, vectors, depth // GROUP, LANES, GROUP)
    windows = _numbers((6, width, inner))
    runs = np.zeros((6, width, pixel), np.float32)
    runs[:, :, :inner] = windows
    for row in range(height):
        parts = [_chunks(runs.reshape(6, -1), packed[panel, row]) for panel in range(panels)]
        sums = np.concatenate(parts, axis=1)
        np.testing.assert_array_equal(sums[:, :channels], np.einsum("pwi,oiw->po", windows, filters[:, :, row]))
        assert not sums[:, channels:].any()


@pytest.mark.parametrize(
    ("depth", "columns", "vectors", "size"), [(7, 10, 2, 4), (32, 4, 1, 32), (1, 1, 1, 2), (65, 30, 6, 22)]
)
def test_a_matrix_in_tiles_multiplies_rows(depth: int, columns: int, vectors: int, size: int) -> None:
    matrix = _numbers((depth, columns))
    packed = _packed(matrix, pack_matrix(TensorType(matrix.shape, "f32"), _tiling(vectors, size), LANES, BFLOAT))
    panels, chunks = -(-columns // (vectors * LANES)), -(-depth // size)
    assert packed.shape == (panels, chunks, vectors, size // GROUP, LANES, GROUP)
    rows = _numbers((5, depth))
    sums = np.concatenate([_chunks(rows, packed[panel]) for panel in range(panels)], axis=1)
    np.testing.assert_array_equal(sums[:, :columns], rows @ matrix)
    assert not sums[:, columns:].any()

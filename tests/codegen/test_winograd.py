"""Winograd's matrices: exact filtering, and the ones IREE computes with."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sartor.codegen.winograd import KERNEL, Matrix, transform_filter, transforms

OUTPUT_TILES = (2, 4, 6)


def times(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize("output_tile", OUTPUT_TILES)
def test_filtering_is_exact(output_tile: int) -> None:
    matrices = transforms(output_tile)
    data = [Fraction(7 * index % 11 - 5) for index in range(output_tile + KERNEL - 1)]
    taps = [Fraction(3), Fraction(-2), Fraction(5)]
    spectrum = [a * b for a, b in zip(times(matrices.filter, taps), times(matrices.image, data), strict=True)]
    expected = [sum(data[start + tap] * taps[tap] for tap in range(KERNEL)) for start in range(output_tile)]
    assert times(matrices.result, spectrum) == expected


@pytest.mark.parametrize("output_tile", OUTPUT_TILES)
def test_a_plane_is_filtered_with_the_transformed_filter(output_tile: int) -> None:
    random = np.random.default_rng(0)
    size = output_tile + KERNEL - 1
    image, weights = random.standard_normal((5, size, size)), random.standard_normal((4, 5, KERNEL, KERNEL))
    matrices = transforms(output_tile)
    down, out = (np.array(each, dtype=np.float64) for each in (matrices.image, matrices.result))
    tile = np.einsum("ai,cij,bj->abc", down, image, down)
    product = np.einsum("abc,abco->abo", tile, transform_filter(weights, output_tile))
    result = np.einsum("ia,abo,jb->oij", out, product, out)
    windows = np.lib.stride_tricks.sliding_window_view(image, (KERNEL, KERNEL), axis=(1, 2))
    assert np.allclose(result, np.einsum("cijyx,ocyx->oij", windows, weights), atol=1e-10)


def test_the_filter_is_transformed_in_double_precision() -> None:
    weights = np.full((1, 1, KERNEL, KERNEL), np.float32(1) / 3)
    assert transform_filter(weights, 6).dtype == np.float64


def test_the_largest_tile_has_the_filter_matrix_of_iree() -> None:
    ninths, parts = 2 / 9, 1 / 90
    expected = np.array(
        [
            [1, 0, 0],
            [-ninths, -ninths, -ninths],
            [-ninths, ninths, -ninths],
            [parts, 2 * parts, 4 * parts],
            [parts, -2 * parts, 4 * parts],
            [64 * parts, 32 * parts, 16 * parts],
            [64 * parts, -32 * parts, 16 * parts],
            [0, 0, 1],
        ]
    )
    assert np.allclose(np.array(transforms(6).filter, dtype=np.float64), expected, atol=1e-15)


def test_other_tiles_are_unknown() -> None:
    with pytest.raises(KeyError):
        transforms(3)

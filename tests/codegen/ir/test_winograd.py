"""Winograd's matrices: exact filtering, and the ones IREE computes with."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ml_dtypes import bfloat16

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.winograd import (
    KERNEL,
    MOST_POINTS_OF_EXACT,
    Matrix,
    exact_transforms,
    transform_filter,
    transforms,
)
from sartor.codegen.ir.winograd import MOST_POINTS_OF_INTEGERS as MOST_INTEGER
from sartor.codegen.ir.winograd import MOST_POINTS_OF_ROUNDED as MOST_ROUNDED

# m and r of every dimension with at most eight points.
SIZES = [(tile, kernel) for kernel in range(1, 8) for tile in range(1, 10 - kernel)]


def times(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize(
    ("output_tile", "kernel", "rounded"),
    [(*size, rounded) for size in SIZES for rounded in (False, True) if not rounded or sum(size) <= MOST_ROUNDED + 1],
)
def test_filtering_is_exact(output_tile: int, kernel: int, rounded: bool) -> None:
    matrices = transforms(output_tile, kernel, rounded=rounded)
    data = [Fraction(7 * index % 11 - 5) for index in range(output_tile + kernel - 1)]
    taps = [Fraction(5 * index % 7 - 2) for index in range(1, kernel + 1)]
    spectrum = [a * b for a, b in zip(times(matrices.filter, taps), times(matrices.image, data), strict=True)]
    expected = [sum(data[start + tap] * taps[tap] for tap in range(kernel)) for start in range(output_tile)]
    assert times(matrices.result, spectrum) == expected


EXACT = [(tile, kernel) for tile, kernel in SIZES if tile + kernel - 1 <= MOST_POINTS_OF_EXACT]


@pytest.mark.parametrize(("output_tile", "kernel"), [size for size in EXACT if size[1] < 5])
def test_filtering_without_fractions_gives_a_multiple(output_tile: int, kernel: int) -> None:
    matrices, factor = exact_transforms(output_tile, kernel)
    data = [Fraction(7 * index % 11 - 5) for index in range(output_tile + kernel - 1)]
    taps = [Fraction(5 * index % 7 - 2) for index in range(1, kernel + 1)]
    spectrum = [a * b for a, b in zip(times(matrices.filter, taps), times(matrices.image, data), strict=True)]
    expected = [factor * sum(data[start + tap] * taps[tap] for tap in range(kernel)) for start in range(output_tile)]
    assert times(matrices.result, spectrum) == expected
    for matrix, most in ((matrices.image, 255), (matrices.filter, 128), (matrices.result, 0)):
        assert all(value.denominator == 1 for row in matrix for value in row)
        largest = max(sum(map(abs, row)) for row in matrix)
        assert most * largest**2 < 2**15


@pytest.mark.parametrize(("output_tile", "kernel"), [(5, 3), (2, 5), (6, 3)])
def test_what_16_bits_do_not_hold_is_refused(output_tile: int, kernel: int) -> None:
    with pytest.raises(RejectionError, match="16 bits do not hold"):
        exact_transforms(output_tile, kernel)


@pytest.mark.parametrize(("tile", "kernel"), [((2, 2), (3, 3)), ((6, 6), (3, 3)), ((3, 1), (6, 1)), ((2, 4), (7, 2))])
def test_a_plane_is_filtered_with_the_transformed_filter(tile: tuple[int, int], kernel: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    sides = [each + taps - 1 for each, taps in zip(tile, kernel, strict=True)]
    image, weights = random.standard_normal((5, *sides)), random.standard_normal((4, 5, *kernel))
    found = [transforms(*pair) for pair in zip(tile, kernel, strict=True)]
    down = [np.array(each.image, dtype=np.float64) for each in found]
    out = [np.array(each.result, dtype=np.float64) for each in found]
    encoded = np.einsum("ai,cij,bj->abc", down[0], image, down[1])
    product = np.einsum("abc,abco->abo", encoded, transform_filter(weights, tile))
    result = np.einsum("ia,abo,jb->oij", out[0], product, out[1])
    windows = np.lib.stride_tricks.sliding_window_view(image, kernel, axis=(1, 2))
    assert np.allclose(result, np.einsum("cijyx,ocyx->oij", windows, weights), atol=1e-10)


def test_what_is_rounded_gets_points_that_lose_less() -> None:
    random = np.random.default_rng(1)
    tiles, weights = random.standard_normal((64, 32, 6, 6)), random.standard_normal((8, 32, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(tiles, (3, 3), axis=(2, 3))
    expected = np.einsum("bcijyx,ocyx->boij", windows, weights)

    def rounded(array: np.ndarray) -> np.ndarray:
        return array.astype(bfloat16).astype(np.float64)

    def error(*, is_chosen: bool) -> float:
        found = transforms(4, rounded=is_chosen)
        down, out = (np.array(each, dtype=np.float64) for each in (found.image, found.result))
        encoded = rounded(np.einsum("ai,bcij,dj->bcad", down, tiles, down))
        product = np.einsum("bcad,adco->boad", encoded, rounded(transform_filter(weights, (4, 4), rounded=is_chosen)))
        return float(np.linalg.norm(np.einsum("ia,boad,jd->boij", out, product, out) - expected))

    assert error(is_chosen=True) < 0.8 * error(is_chosen=False)


def test_the_filter_is_transformed_in_double_precision() -> None:
    weights = np.full((1, 1, KERNEL, KERNEL), np.float32(1) / 3)
    assert transform_filter(weights, (6, 6)).dtype == np.float64


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


@pytest.mark.parametrize(("output_tile", "kernel"), [(7, 3), (2, 8), (0, 3), (3, 0)])
def test_more_points_than_there_are(output_tile: int, kernel: int) -> None:
    with pytest.raises(ValueError, match=r"does not have 1 to 8 points"):
        transforms(output_tile, kernel)


def test_more_points_than_there_are_for_what_is_rounded() -> None:
    with pytest.raises(ValueError, match=r"F\(5, 3\) does not have 1 to 6 points"):
        transforms(5, rounded=True)


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_tiles_of_whole_numbers_are_sums_of_two_pixels_a_side(kernel: int) -> None:
    """Sums of at most four 8-bit pixels fit 16 bits."""
    for size in range(kernel, MOST_INTEGER + 1):
        for row in transforms(size - kernel + 1, kernel).image:
            assert set(row) <= {-1, 0, 1}
            assert sum(map(abs, row)) <= 2

"""Winograd's minimal filtering F(m x m, r x r) (Lavin and Gray, 2016, section 4.1).

With n = m + r - 1 interpolation points, the last of them at infinity, an n x n tile d of the image and a filter g give
an m x m tile of the result, A^T [(G g G^T) * (B^T d B)] A, where * multiplies element by element. The two dimensions
may differ in m and r; where r and m are 1 nothing is transformed.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sartor.codegen.ir.rejection import RejectionError

KERNEL = 3
"""Taps along a side of the filters that ``lowerings/winograd_layer.py`` supports; our own kernels take others too."""

# More would need larger numbers, whose powers cost precision.
_POINTS = ("0", "1", "-1", "2", "-2", "1/2", "-1/2")
# If transformed data is rounded to few bits, the largest error with these points is less than half of that with 2 and
# -2 (Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution, 2020). They take more
# additions, because only rows of points p and -p share sums.
_POINTS_OF_ROUNDED = ("0", "1", "-1", "2", "-1/2")
MOST_POINTS = len(_POINTS) + 1
"""The largest n."""
MOST_POINTS_OF_ROUNDED = len(_POINTS_OF_ROUNDED) + 1
"""The largest n if transformed data is rounded to a narrower type."""
MOST_POINTS_IN_INVOCATIONS = 6
"""The same for a GPU: an invocation has all points of a tile in registers, and drivers compile them."""
MOST_POINTS_OF_INTEGERS = 4
"""The largest n for which integer tiles need only additions and subtractions: the points are 0, 1 and -1."""
MOST_POINTS_OF_EXACT = 6
"""The largest n for which integers of 8 bits are transformed to 16 without loss."""

# What magnitudes in a row of B^T and of G may add to, so that 255 and 128 times the product of two rows fit 16 bits.
_MOST_OF_IMAGE, _MOST_OF_FILTER = 11, 15

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The three matrices of one dimension, exact.

    Attributes:
        image: B^T, of shape ``[n, n]``.
        filter: G, of shape ``[n, r]``.
        result: A^T, of shape ``[m, n]``.
    """

    image: Matrix
    filter: Matrix
    result: Matrix


@functools.cache
def transforms(output_tile: int, kernel: int = KERNEL, *, rounded: bool = False) -> Transforms:
    """Toom and Cook's construction on small points (Blahut, 2010, section 5.2).

    No row of B^T begins with a negative number. With these signs F(6 x 6, 3 x 3) equals what IREE's Winograd ops
    compute.

    Args:
        output_tile: m.
        kernel: r.
        rounded: whether transformed images and filters are rounded to a narrower type.

    Raises:
        RejectionError: if more points would be needed than there are.
    """
    size = output_tile + kernel - 1
    chosen = _POINTS_OF_ROUNDED if rounded else _POINTS
    if not 0 < size <= len(chosen) + 1 or min(output_tile, kernel) < 1:
        raise RejectionError(f"F({output_tile}, {kernel}) does not have 1 to {len(chosen) + 1} points")
    points = [Fraction(point) for point in chosen[: size - 1]]
    image, filters = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = _product([(point - other,) for other in others])[0]
        row = _product([(-other, Fraction(1)) for other in others])
        sign = -1 if row[0] < 0 else 1
        image.append(_padded(tuple(sign * value for value in row), size))
        filters.append(tuple(sign * point**power / scale for power in range(kernel)))
    image.append(_product([(-point, Fraction(1)) for point in points]))
    filters.append((*_padded((), kernel - 1), Fraction(1)))
    result = tuple(
        (*(point**power for point in points), Fraction(power == output_tile - 1)) for power in range(output_tile)
    )
    return Transforms(tuple(image), tuple(filters), result)


def _product(factors: list[tuple[Fraction, ...]]) -> tuple[Fraction, ...]:
    """Coefficients of a product of polynomials, lowest power first."""
    result: tuple[Fraction, ...] = (Fraction(1),)
    for factor in factors:
        terms = [Fraction(0)] * (len(result) + len(factor) - 1)
        for power, coefficient in enumerate(result):
            for shift, other in enumerate(factor):
                terms[power + shift] += coefficient * other
        result = tuple(terms)
    return result


def _padded(values: tuple[Fraction, ...], size: int) -> tuple[Fraction, ...]:
    return values + (Fraction(0),) * (size - len(values))


def transform_filter(weights: np.ndarray, output_tile: tuple[int, int], *, rounded: bool = False) -> np.ndarray:
    """G w G^T of every filter, in double precision.

    Args:
        weights: ``[OC, IC, KH, KW]``.
        output_tile: output pixels of a tile along H and W.
        rounded: whether the result will be rounded to a narrower type.

    Returns:
        ``[NH, NW, IC, OC]``, n of both dimensions.

    Raises:
        RejectionError: if more points would be needed than there are.
    """
    channels, depth, *kernel = weights.shape
    rows, columns = (
        np.array([[float(value) for value in row] for row in transforms(tile, taps, rounded=rounded).filter])
        for tile, taps in zip(output_tile, kernel, strict=True)
    )
    # As one product of matrices this takes a fifth of the time of two sums over taps.
    both = np.kron(rows, columns)
    products = both @ weights.reshape(channels * depth, kernel[0] * kernel[1]).astype(np.float64).T
    return products.reshape(len(rows), len(columns), channels, depth).transpose(0, 1, 3, 2)


@functools.cache
def exact_transforms(output_tile: int, kernel: int = KERNEL) -> tuple[Transforms, int]:
    """Matrices of integers for one dimension, and the factor by which results are larger.

    It is the least one that leaves no fractions in G. Each of G's rows is multiplied by as much of it as 16 bits have
    room for, and the column of A^T that belongs to it by the rest.

    Raises:
        RejectionError: if more points would be needed than there are, or 16 bits do not hold what is transformed.
    """
    whole_transforms = transforms(output_tile, kernel)
    factor = math.lcm(*(value.denominator for row in whole_transforms.filter for value in row))
    shares = [_share(row, factor) for row in whole_transforms.filter]
    is_whole = all(value.denominator == 1 for row in whole_transforms.image for value in row)
    if not is_whole or None in shares or max(map(_magnitude, whole_transforms.image)) > _MOST_OF_IMAGE:
        raise RejectionError(f"16 bits do not hold what is transformed by F({output_tile}, {kernel})")
    known = [share for share in shares if share is not None]
    filters = tuple(
        tuple(value * share for value in row) for row, share in zip(whole_transforms.filter, known, strict=True)
    )
    result = tuple(
        tuple(value * factor / share for value, share in zip(row, known, strict=True))
        for row in whole_transforms.result
    )
    return Transforms(whole_transforms.image, filters, result), factor


def _share(row: tuple[Fraction, ...], factor: int) -> int | None:
    """The largest divisor of a factor that makes a row of G one of integers that 16 bits have room for; None if there
    is none."""
    divisors = (index for index in range(factor, 0, -1) if factor % index == 0)
    whole = (divisor for divisor in divisors if all((value * divisor).denominator == 1 for value in row))
    return next((factor for factor in whole if _magnitude(row) * factor <= _MOST_OF_FILTER), None)


def _magnitude(row: tuple[Fraction, ...]) -> Fraction:
    return sum(map(abs, row), Fraction(0))

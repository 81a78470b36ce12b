"""Winograd's filter transform for 3x3 convolutions (Lavin and Gray, 2016, section 4.1)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

KERNEL = 3

# Interpolation points; the last row of the transform belongs to the point at infinity.
_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2)),
    6: (
        Fraction(0),
        Fraction(1),
        Fraction(-1),
        Fraction(2),
        Fraction(-2),
        Fraction(1, 2),
        Fraction(-1, 2),
    ),
}


def filter_matrix(output_tile: int) -> np.ndarray:
    """G of F(m x m, 3 x 3), of shape ``[m + 2, 3]``, scaled as IREE's input and output transforms expect.

    Raises:
        KeyError: for an output tile other than 2, 4 or 6.
    """
    points = _POINTS[output_tile]
    rows = []
    for point in points:
        others = [point - other for other in points if other != point]
        scale = Fraction(1)
        for difference in others:
            scale *= difference
        rows.append([point**power / scale for power in range(KERNEL)])
    rows.append([Fraction(0), Fraction(0), Fraction(1)])
    return np.array([[float(value) for value in row] for row in rows])


def transform_filter(weights: np.ndarray, output_tile: int) -> np.ndarray:
    """G w G^T of every filter, in double precision.

    Args:
        weights: ``[OC, IC, 3, 3]``.
        output_tile: output pixels per side of a tile.

    Returns:
        ``[tile, tile, IC, OC]`` with ``tile = output_tile + 2``.
    """
    matrix = filter_matrix(output_tile)
    return np.einsum("ai,ocij,bj->abco", matrix, weights.astype(np.float64), matrix, optimize=True)

"""Rounds a weight row by row, and moves each row's rounding error to the rows that are not rounded yet.

Frantar et al., GPTQ, 2023, section 3, algorithm 1, where rows are columns of the transposed weight. The error of
results is ``tr(E^T H E)`` with the second moments ``H = x^T x`` of what is multiplied, and the error ``E`` of the
weight. The best change of the rows that are left is then given by the Cholesky factor of H's inverse, whatever the
codes are. Scales of a block are found when its first row is reached, from what errors have made of its rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.onnx_model.graphs.graph import Array

# Added to the diagonal, as a part of its mean, for directions in which samples say little (GPTQ, section 3, step 3).
_DAMPING, _LEAST = 0.01, 1e-30
# Rows whose errors change later rows together, in one product of matrices (GPTQ, section 3, step 2).
_TOGETHER = 256


def compensated(matrix: Array, moments: Array, of: BlockEncoding) -> Array:
    """A matrix whose blocks are multiples of their scales, as ``BlockEncoding.rounded`` finds them again.

    Args:
        matrix: ``[depth, columns]`` in f32.
        moments: ``[depth, depth]``, of what it is multiplied by.
        of: the blocks; ``_TOGETHER`` is a multiple of their length.
    """
    factor = _factor(moments)
    left, array = matrix.astype(np.float32), np.empty(matrix.shape, np.float32)
    for start in range(0, of.depth, _TOGETHER):
        rows = slice(start, min(start + _TOGETHER, of.depth))
        errors = _round_rows(left[rows], array[rows], factor[rows, rows], of)
        left[rows.stop :] -= factor[rows, rows.stop :].T @ errors
    return array


def _round_rows(left: Array, array: Array, factor: Array, of: BlockEncoding) -> Array:
    """Round some rows, which are whole blocks, into ``found``; returns each row's error as its share of the factor's
    diagonal. ``left`` is changed."""
    errors = np.empty_like(left)
    steps = np.ones(of.columns, np.float32)
    for row in range(len(left)):
        if row % of.block == 0:
            block = left[row : row + of.block]
            steps = replace(of, depth=len(block)).rounded(block)[1][:, 0]
        codes = np.rint(left[row] / np.where(steps == 0, 1, steps))
        array[row] = np.clip(codes, -of.middle, of.middle - 1) * steps
        errors[row] = (left[row] - array[row]) / factor[row, row]
        left[row + 1 :] -= np.outer(factor[row, row + 1 :], errors[row])
    return errors


def _factor(moments: Array) -> Array:
    """The upper Cholesky factor U of the inverse ``U^T U`` of damped moments, in f32.

    With the order of rows and columns reversed, ``H = R R^T`` for an upper R, whose inverse is U.
    """
    damping = _DAMPING * max(float(moments.diagonal().mean()), _LEAST)
    damped = moments + damping * np.eye(len(moments))
    reversed_factor = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
    upper: Array = np.triu(np.linalg.inv(reversed_factor)).astype(np.float32)
    return upper

"""Rounding with compensated errors: against its definition, and against rounding to nearest on other rows."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.precision.compensation.compensated_rounding import compensated
from sartor.precision.compensation.second_moments import SecondMoments
from tests.plugin.onnx_model.builders import Array, weights


def _rows(count: int, depth: int, seed: int) -> Array:
    """Rows whose channels depend on each other and differ in size, as those of networks."""
    mixed = np.random.default_rng(0).standard_normal((depth // 4, depth))
    random = np.random.default_rng(seed)
    sizes = np.exp(np.random.default_rng(1).standard_normal(depth))
    rows = random.standard_normal((count, depth // 4)) @ mixed + 0.3 * random.standard_normal((count, depth))
    return np.asarray(rows * sizes, np.float32)


def _moments(*samples: Array) -> Array:
    seen = SecondMoments()
    for sample in samples:
        seen.observe(sample)
    assert seen.total is not None
    return seen.total


def _nearest(matrix: Array, of: BlockEncoding) -> Array:
    return of.decoded(*of.rounded(matrix))


def _error(matrix: Array, found: Array, rows: Array) -> float:
    return float(np.linalg.norm(rows @ (found - matrix)) / np.linalg.norm(rows @ matrix))


@pytest.mark.parametrize(("depth", "columns", "block"), [(256, 40, 32), (300, 17, 64), (96, 1, 16), (600, 8, 256)])
def test_errors_on_other_rows_are_smaller_than_by_rounding_to_nearest(depth: int, columns: int, block: int) -> None:
    matrix, of = weights(depth, columns), BlockEncoding(4, block, depth, columns)
    found = compensated(matrix, _moments(*np.split(_rows(1024, depth, 2), 4)), of)
    held_out = _rows(256, depth, 3)
    assert _error(matrix, found, held_out) < 0.7 * _error(matrix, _nearest(matrix, of), held_out)
    # What is packed is what was found.
    assert np.abs(_nearest(found, of) - found).max() <= 1e-6 * np.abs(found).max()


def test_each_row_is_rounded_from_the_best_change_of_what_is_left() -> None:
    """By least squares for the rows that are left, with those before as they were rounded."""
    depth, of = 48, BlockEncoding(4, 16, 48, 5)
    matrix, moments = weights(depth, 5), _moments(_rows(400, depth, 4))
    damped = moments + 0.01 * moments.diagonal().mean() * np.eye(depth)
    found = compensated(matrix, moments, of)
    steps = np.repeat(of.rounded(found)[1].T, 16, 0)
    for row in range(depth):
        error = found[:row] - matrix[:row]
        best = matrix[row:] - np.linalg.solve(damped[row:, row:], damped[row:, :row] @ error)
        nearest = np.clip(np.rint(best[0] / steps[row]), -8, 7) * steps[row]
        assert np.abs(found[row] - nearest).max() <= 1e-5 * np.abs(matrix).max(), row


def test_rows_that_say_nothing_leave_rounding_to_nearest() -> None:
    matrix, of = weights(64, 6), BlockEncoding(4, 32, 64, 6)
    for moments in (np.eye(64), np.zeros((64, 64))):
        assert np.allclose(compensated(matrix, moments, of), _nearest(matrix, of), atol=1e-7)

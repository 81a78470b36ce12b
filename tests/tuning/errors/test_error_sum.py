"""The model of errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, cosine_distance
from sartor.tuning.errors.error_sum import joined, layer_error, layer_measure, moved, squared_error, total

COSINE, TOP1 = ErrorMeasure.parse("cosine"), ErrorMeasure.parse("top1")


def test_independent_errors_add_like_a_random_walk() -> None:
    assert joined([3e-3, 4e-3]) == pytest.approx(5e-3)
    assert total(squared_error(2e-3)) == pytest.approx(2e-3)
    random = np.random.default_rng(0)
    sums = random.standard_normal((10_000, 20)) @ np.full(20, 1e-3)
    assert float(np.std(sums)) == pytest.approx(joined([1e-3] * 20), rel=0.05)


def test_a_cosine_stands_for_a_relative_error() -> None:
    right = np.array([3.0, 4.0])
    off = right + np.array([4.0, -3.0]) * 1e-3
    assert layer_error(COSINE, cosine_distance(off, right)) == pytest.approx(1e-3, rel=1e-3)
    assert layer_error(RELATIVE, 1e-3) == 1e-3
    assert math.isinf(layer_error(COSINE, math.inf))


def test_measures_that_are_blind_to_small_errors_are_not_asked_about_layers() -> None:
    assert layer_measure(RELATIVE) == RELATIVE
    assert layer_measure(TOP1) == layer_measure(COSINE) == COSINE


def test_a_sum_moves_by_the_order_of_the_measure() -> None:
    assert moved(4e-4, RELATIVE, 0.5) == pytest.approx(1e-4)
    assert moved(4e-4, COSINE, 0.5) == pytest.approx(2e-4)

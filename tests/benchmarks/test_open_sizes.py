"""The table of sizes: which are timed, and what stands below it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.open_sizes import combinations, is_near, mean


def test_each_size_is_timed_with_each_of_the_others() -> None:
    expected = [("batch=1", "sequence=7"), ("batch=1", "sequence=64"), ("batch=8", "sequence=7")]
    found = combinations(["batch=1,8", "sequence=7,64"])
    assert found[:3] == expected
    assert found[3:] == [("batch=8", "sequence=64")]


def test_halves_and_doubles_cancel_in_the_mean() -> None:
    assert mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)


def test_outputs_are_near_to_a_part_of_the_largest_number_and_not_if_they_are_nan() -> None:
    expected = np.array([1e-20, 0.5], np.float32)
    assert is_near(np.array([3e-20, 0.5], np.float32), expected)
    assert not is_near(np.array([1e-3, 0.5], np.float32), expected)
    assert not is_near(np.array([np.nan, 0.5], np.float32), expected)
    assert is_near(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))

"""The table of sizes: which are timed, and what stands below it."""

from __future__ import annotations

import pytest

from benchmarks.open_sizes import combinations, mean


def test_each_size_is_timed_with_each_of_the_others() -> None:
    expected = [("batch=1", "sequence=7"), ("batch=1", "sequence=64"), ("batch=8", "sequence=7")]
    found = combinations(["batch=1,8", "sequence=7,64"])
    assert found[:3] == expected
    assert found[3:] == [("batch=8", "sequence=64")]


def test_halves_and_doubles_cancel_in_the_mean() -> None:
    assert mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)

"""Counts beside outputs: their names say what they count, and outputs are cut to them."""

from __future__ import annotations

import numpy as np

from sartor.runtime.driver.counts import (
    CountedAxis,
    Cut,
    count_name,
    counted_axis,
    cut_outputs,
    find_cuts,
    shown_outputs,
)
from sartor.runtime.driver.signature import TensorSpec

ODD = "a:1:b\nc"


def test_the_name_says_what_is_counted() -> None:
    assert count_name("boxes", 1) == "sartor.count:1:boxes"
    assert counted_axis(count_name(ODD, 2)) == CountedAxis(ODD, 2)
    assert counted_axis("sartor.count:boxes") is None
    assert counted_axis("boxes") is None
    assert counted_axis(f"sartor.count:{'9' * 5000}:boxes") is None


def test_only_outputs_that_are_there_are_cut() -> None:
    assert find_cuts(["x", "y", count_name("y", 1), count_name("z", 0)]) == {1: Cut(1, 2)}


def test_outputs_are_cut_and_counts_are_hidden() -> None:
    full = np.arange(6).reshape(2, 3)
    whole, cut = cut_outputs(["x", "y", count_name("y", 1)], [full, full, np.array(2)])
    np.testing.assert_array_equal(whole, full)
    np.testing.assert_array_equal(cut, [[0, 1], [3, 4]])
    assert cut.flags.c_contiguous
    (empty,) = cut_outputs(["y", count_name("y", 0)], [full, np.array(0)])
    assert empty.shape == (0, 3)


def test_sizes_that_are_counted_are_open() -> None:
    specs = [TensorSpec("y", "float32", (2, 3)), TensorSpec(count_name("y", 1), "int64", ())]
    assert shown_outputs(specs) == (TensorSpec("y", "float32", (2, None)),)

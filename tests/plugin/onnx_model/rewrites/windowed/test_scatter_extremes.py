"""Scatters that keep the larger or smaller value, of numbers without sign."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sartor.backend
from sartor.errors import UnsupportedModelError

_ROWS = np.array([[2], [0], [-1], [2]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_large_numbers_are_not_taken_for_negative_ones(dtype: type[np.integer], reduction: str) -> None:
    limits, random = np.iinfo(dtype), np.random.default_rng(0)
    data, updates = (random.integers(limits.min, limits.max, (4, 5), dtype, endpoint=True) for _ in range(2))
    data[0, 0], updates[1, 0] = limits.max, limits.min
    node = helper.make_node("ScatterND", ["data", "rows", "updates"], ["y"], reduction=reduction)
    expected = data.copy()
    getattr(np, f"{reduction}imum").at(expected, _ROWS[:, 0], updates)
    (found,) = sartor.backend.run_node(node, [data, _ROWS, updates])
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_there_is_no_wider_type_than_64_bits() -> None:
    node = helper.make_node("ScatterND", ["data", "rows", "updates"], ["y"], name="best", reduction="max")
    data = np.zeros((4, 5), np.uint64)
    with pytest.raises(UnsupportedModelError, match="compares uint64; cast to int64 around it"):
        sartor.backend.run_node(node, [data, _ROWS, data])

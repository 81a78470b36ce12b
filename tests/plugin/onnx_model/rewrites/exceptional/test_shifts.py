"""Shifts by the width of a number and more."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sartor.backend


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_what_is_shifted_out_is_gone(dtype: type[np.integer], direction: str) -> None:
    limits, width = np.iinfo(dtype), np.iinfo(dtype).bits
    values = np.array([limits.min, limits.max, 1, 5, limits.max - 9] * 7, dtype)
    longest = 127 if limits.min else 255
    distances = np.repeat(np.array([0, 1, width - 1, width, width + 1, longest, longest - 1], dtype), 5)
    node = helper.make_node("BitShift", ["x", "d"], ["y"], direction=direction)
    (found,) = sartor.backend.run_node(node, [values, distances])
    wide = [
        int(value) << int(by) if direction == "LEFT" else int(value) >> int(by)
        for value, by in zip(values, distances, strict=True)
    ]
    np.testing.assert_array_equal(found, np.array([each % 2**width for each in wide], np.uint64).astype(dtype))

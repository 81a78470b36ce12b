"""Window sizes against ONNX's shape rules, and taps against padding."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.networks.window import Window


@pytest.mark.parametrize(
    ("window", "size", "expected"),
    [
        (Window.of(3, 1, 1), (56, 56), (56, 56)),
        (Window.of(3, 2, 0), (224, 224), (111, 111)),
        (Window.of((1, 7), 1, (0, 3)), (17, 17), (17, 17)),
        (Window.of(6, 2, (2, 2, 3, 3)), (56, 56), (28, 28)),
        (Window.of(3, 2, (0, 0, 1, 1)), (112, 112), (56, 56)),
    ],
)
def test_output_size(window: Window, size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert window.output_size(*size) == expected


def test_taps_at_the_border_read_padding() -> None:
    inside = Window.of(3, 1, 1).inside(4, 4).reshape(3, 3)
    np.testing.assert_allclose(inside, np.outer([0.75, 1, 0.75], [0.75, 1, 0.75]))


def test_taps_without_padding_are_always_inside() -> None:
    np.testing.assert_array_equal(Window.of(5, 2, 0).inside(9, 11), np.ones(25))

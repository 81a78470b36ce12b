"""Layouts: shapes in memory, steps from ONNX's layout, and which of them have the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import image_layout, in_layout, layouts_of, plain_layout, same_order

LAYOUTS = ("nchw", "nhwc", "nchw8c", "nchw16c")
SHAPES = [(1, 16, 1, 1), (1, 16, 5, 7), (8, 16, 3, 1), (2, 48, 1, 4), (1, 32, 1, 1), (3, 16, 2, 2)]


def image(*shape: int) -> TensorType:
    return TensorType(shape, "f32")


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("nchw", (2, 48, 5, 7)),
        ("nhwc", (2, 5, 7, 48)),
        ("nchw16c", (2, 3, 5, 7, 16)),
        ("nchw8c", (2, 6, 5, 7, 8)),
    ],
)
def test_shape_in_memory(layout: str, shape: tuple[int, ...]) -> None:
    assert in_layout(image(2, 48, 5, 7), layout).shape == shape


def test_a_blocked_image_holds_the_channels_of_a_block_side_by_side() -> None:
    logical = image(2, 32, 3, 4)
    values = np.arange(logical.elements).reshape(logical.shape)
    packed = image_layout("nchw16c").packing(logical).apply(values)
    for batch, channel, row, column in [(0, 0, 0, 0), (1, 17, 2, 3), (0, 31, 1, 0)]:
        assert packed[batch, channel // 16, row, column, channel % 16] == values[batch, channel, row, column]


@pytest.mark.parametrize("shape", SHAPES)
def test_layouts_of_the_same_order_are_told_apart_from_others(shape: tuple[int, ...]) -> None:
    logical = image(*shape)
    values = np.arange(logical.elements).reshape(shape)
    bytes_of = {name: image_layout(name).packing(logical).apply(values).tobytes() for name in LAYOUTS}
    for one in LAYOUTS:
        for other in LAYOUTS:
            assert same_order(logical, one, other) == (bytes_of[one] == bytes_of[other]), (one, other)


def test_other_ranks_have_one_layout() -> None:
    matrix = TensorType((3, 4), "f32")
    assert plain_layout(matrix) == "nd"
    assert plain_layout(image(1, 2, 3, 4)) == "nchw"
    assert in_layout(matrix, "nd") == matrix
    with pytest.raises(ValueError, match="needs an image"):
        in_layout(matrix, "nhwc")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="19 channels do not divide into blocks of 16"):
        in_layout(image(1, 19, 2, 2), "nchw16c")
    with pytest.raises(ValueError, match="there is no image layout 'chwn'"):
        image_layout("chwn")


def test_only_images_lie_in_layouts_of_images() -> None:
    tensors = (image(1, 2, 3, 4), TensorType((3, 4), "f32"))
    assert layouts_of(tensors) == ("nchw", "nd")
    assert layouts_of(tensors, "nhwc") == ("nhwc", "nd")

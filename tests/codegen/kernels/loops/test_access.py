"""Strides of images in every layout, and what happens to them when rows are joined."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import image_layout
from sartor.codegen.kernels.loops.access import Access, ImageStrides, image_strides, row_major, vector_stride

IMAGE = TensorType((2, 32, 3, 5), "f32")


@pytest.mark.parametrize(
    ("channels", "layout"), [(32, "nhwc"), (5, "nhwc"), (32, "nchw16c"), (32, "nchw8c"), (32, "nchw4c"), (1, "nchw")]
)
def test_strides_find_every_pixel(channels: int, layout: str) -> None:
    image = TensorType((2, channels, 3, 5), "f32")
    numbers = np.arange(image.elements, dtype=np.float32).reshape(image.shape)
    memory = image_layout(layout).packing(image).apply(numbers).ravel()
    strides = image_strides(image, layout)
    for n, c, h, w in np.ndindex(image.shape):
        run, inside = divmod(c, strides.block)
        offset = n * strides.batch + run * strides.blocks + h * strides.row + w * strides.column + inside
        assert memory[offset] == numbers[n, c, h, w]


def test_channels_of_a_vector_must_be_adjacent() -> None:
    with pytest.raises(ValueError, match="channels are not adjacent in nchw"):
        image_strides(IMAGE, "nchw")
    with pytest.raises(ValueError, match="blocks of 8 channels do not match vectors of 16"):
        vector_stride(image_strides(IMAGE, "nchw8c"), 16)


def test_vectors_follow_each_other_at_the_distance_of_blocks() -> None:
    assert vector_stride(image_strides(IMAGE, "nhwc"), 8) == 8
    assert vector_stride(image_strides(IMAGE, "nchw8c"), 8) == 8 * 3 * 5
    assert vector_stride(ImageStrides(480, 5, 1, 1, 1), 8) == 8


def test_joined_rows_are_cut_anew() -> None:
    access = Access(memory=0, batch=480, row=160, column=32, vector=16)
    assert access.flattened(5).split(3) == Access(0, 480, 96, 32, 16)
    by_channel = Access(0, 32, 0, 0, 16)
    assert by_channel.flattened(5).split(3) == by_channel


@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_do_not_follow_each_other_cannot_be_joined(row: int) -> None:
    with pytest.raises(ValueError, match="address rows and columns separately"):
        Access(memory=0, batch=0, row=row, column=1, vector=None).flattened(5)


def test_row_major_strides() -> None:
    assert row_major((2, 3, 5)) == (15, 5, 1)
    assert row_major(()) == ()

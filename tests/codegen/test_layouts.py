"""Layouts: shapes in memory, steps from ONNX's layout, and which of them have the same bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import (
    form_of,
    form_packing,
    image_layout,
    physical_type,
    plain_layout,
    same_bytes,
    split_form,
    stored_as,
)

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
    assert physical_type(image(2, 48, 5, 7), layout).shape == shape


def test_a_blocked_image_holds_the_channels_of_a_block_side_by_side() -> None:
    logical = image(2, 32, 3, 4)
    values = np.arange(logical.elements).reshape(logical.shape)
    packed = image_layout("nchw16c").packing(logical).apply(values)
    for batch, channel, row, column in [(0, 0, 0, 0), (1, 17, 2, 3), (0, 31, 1, 0)]:
        assert packed[batch, channel // 16, row, column, channel % 16] == values[batch, channel, row, column]


@pytest.mark.parametrize("shape", SHAPES)
def test_layouts_of_the_same_bytes_are_told_apart_from_others(shape: tuple[int, ...]) -> None:
    logical = image(*shape)
    values = np.arange(logical.elements).reshape(shape)
    bytes_of = {name: image_layout(name).packing(logical).apply(values).tobytes() for name in LAYOUTS}
    for one in LAYOUTS:
        for other in LAYOUTS:
            assert same_bytes(logical, one, other) == (bytes_of[one] == bytes_of[other]), (one, other)


def test_other_ranks_have_one_layout() -> None:
    matrix = TensorType((3, 4), "f32")
    assert plain_layout(matrix) == "nd"
    assert plain_layout(image(1, 2, 3, 4)) == "nchw"
    assert physical_type(matrix, "nd") == matrix
    with pytest.raises(ValueError, match="needs an image"):
        physical_type(matrix, "nhwc")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="19 channels do not divide into blocks of 16"):
        physical_type(image(1, 19, 2, 2), "nchw16c")
    with pytest.raises(ValueError, match="there is no image layout 'chwn'"):
        image_layout("chwn")


@pytest.mark.parametrize(
    ("form", "dtype", "layout"),
    [("nhwc", None, "nhwc"), ("bf16@nhwc", "bf16", "nhwc"), ("bf16@nd", "bf16", "nd"), ("i8@nchw16c", "i8", "nchw16c")],
)
def test_a_form_is_a_layout_and_an_element_type_of_its_own(form: str, dtype: str | None, layout: str) -> None:
    assert split_form(form) == (dtype, layout)
    assert form_of(layout, dtype) == form
    assert stored_as(form, "f16") == f"f16@{layout}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_form_says_what_lies_in_memory(layout: str, shape: tuple[int, ...]) -> None:
    logical = image(*shape)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    moved, stored = (form_packing(logical, form).apply(values) for form in (layout, f"bf16@{layout}"))
    assert TensorType.of(stored.shape, stored.dtype) == physical_type(logical, f"bf16@{layout}")
    assert TensorType.of(moved.shape, moved.dtype) == physical_type(logical, layout)
    assert stored.tobytes() == moved.astype(ml_dtypes.bfloat16).tobytes()


def test_tensors_of_any_rank_are_stored_in_another_type() -> None:
    for shape in ((), (3,), (3, 4), (2, 3, 4), (1, 2, 3, 4, 5)):
        logical = TensorType(shape, "f32")
        assert physical_type(logical, "bf16@nd") == TensorType(shape, "bf16")
        assert form_packing(logical, "bf16@nd").type_of(logical) == TensorType(shape, "bf16")
    with pytest.raises(ValueError, match="needs an image"):
        physical_type(TensorType((3, 4), "f32"), "bf16@nhwc")


def test_forms_of_different_element_types_never_have_the_same_bytes() -> None:
    logical = image(1, 16, 1, 1)
    assert same_bytes(logical, "bf16@nchw", "bf16@nhwc")
    assert same_bytes(logical, "bf16@nchw16c", "bf16@nchw16c")
    assert not same_bytes(logical, "nhwc", "bf16@nhwc")
    assert not same_bytes(logical, "bf16@nchw", "f16@nchw")
    assert not same_bytes(image(1, 16, 2, 2), "bf16@nchw", "bf16@nhwc")

"""Schemas and layouts: how they read, what lies in memory, and which have the same bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import image_layout, in_layout, layouts_of, plain_layout, same_order
from sartor.codegen.ir.schema import Schema, physical_types, ranges_of, same_bytes, schemas_of

IMAGE = TensorType((1, 16, 4, 4), "f32")
HALF = TensorType((1, 16, 4, 4), "f16")
MATRIX = TensorType((3, 4), "f32")
BYTES = TensorType((3, 4), "i8")
SHAPES = [(1, 16, 1, 1), (1, 16, 5, 7), (8, 16, 3, 1), (2, 48, 1, 4), (1, 32, 1, 1), (3, 16, 2, 2)]


@pytest.mark.parametrize("text", ["cpu:f32@nhwc", "cpu:bf16@nhwc", "vulkan:f16@nchw16c", "cpu:i8@nd"])
def test_a_schema_reads_as_it_is_written(text: str) -> None:
    assert str(Schema.parse(text)) == text


@pytest.mark.parametrize("text", ["cpu:f32", "f32@nhwc", "cpu:f32@", "cpu:bf16@nhwc@nchw", "CPU:f32@nhwc", ""])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a schema"):
        Schema.parse(text)


@pytest.mark.parametrize(
    ("logical", "layout", "stored", "text"),
    [
        (IMAGE, "nhwc", None, "cpu:f32@nhwc"),
        (IMAGE, "nhwc", "bf16", "cpu:bf16@nhwc"),
        (HALF, "nhwc", None, "cpu:f16@nhwc"),
        (HALF, "nhwc", "bf16", "cpu:bf16@nhwc"),
        (BYTES, "nd", None, "cpu:i8@nd"),
    ],
)
def test_tensors_are_stored_in_their_own_type_or_in_another(
    logical: TensorType, layout: str, stored: str | None, text: str
) -> None:
    assert list(map(str, schemas_of((logical,), (layout,), "cpu", stored))) == [text]


def test_the_plain_schema_is_that_of_onnx() -> None:
    assert str(Schema.plain(HALF, "vulkan")) == "vulkan:f16@nchw"
    assert str(Schema.plain(BYTES, "cpu")) == "cpu:i8@nd"


def test_layouts_alone_do_not_join_layers() -> None:
    schema = Schema.parse("cpu:f32@nhwc")
    assert schema != schema.stored_as("bf16")
    assert schema.stored_as("bf16").stored_as("f32") == schema


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nchw8c", "nchw16c"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_schema_says_what_lies_in_memory(layout: str, shape: tuple[int, ...]) -> None:
    logical = TensorType(shape, "f32")
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    schemas = [Schema("cpu", dtype, layout) for dtype in ("f32", "bf16")]
    moved, stored = (schema.packing(logical).apply(values) for schema in schemas)
    found = [TensorType.of(each.shape, each.dtype) for each in (moved, stored)]
    assert found == physical_types((logical, logical), schemas)
    assert stored.tobytes() == moved.astype(ml_dtypes.bfloat16).tobytes()


def test_tensors_of_any_rank_are_stored_in_another_type() -> None:
    narrow = Schema.parse("cpu:bf16@nd")
    for shape in ((), (3,), (3, 4), (2, 3, 4), (1, 2, 3, 4, 5)):
        logical = TensorType(shape, "f32")
        assert narrow.physical(logical) == TensorType(shape, "bf16")
        assert narrow.packing(logical).type_of(logical) == TensorType(shape, "bf16")
    with pytest.raises(ValueError, match="needs an image"):
        Schema.parse("cpu:bf16@nhwc").physical(TensorType((3, 4), "f32"))


def test_schemas_of_different_element_types_never_have_the_same_bytes() -> None:
    def same(shape: tuple[int, ...], one: str, other: str) -> bool:
        return same_bytes(TensorType(shape, "f32"), Schema.parse(f"cpu:{one}"), Schema.parse(f"cpu:{other}"))

    assert same((1, 16, 1, 1), "bf16@nchw", "bf16@nhwc")
    assert same((1, 16, 1, 1), "bf16@nchw16c", "bf16@nchw16c")
    assert not same((1, 16, 1, 1), "f32@nhwc", "bf16@nhwc")
    assert not same((1, 16, 1, 1), "bf16@nchw", "f16@nchw")
    assert not same((1, 16, 2, 2), "bf16@nchw", "bf16@nhwc")


def test_numbers_stand_for_others_only_where_onnx_has_another_type() -> None:
    schema = Schema.parse("cpu:i8@nd")
    assert schema.quantises(MATRIX)
    assert not schema.quantises(BYTES)
    assert not schema.stored_as("bf16").quantises(MATRIX)


def test_code_takes_the_ranges_of_what_is_quantised() -> None:
    own, narrow = Schema.parse("cpu:f32@nd"), Schema.parse("cpu:i8@nd")
    assert ranges_of((MATRIX, BYTES, MATRIX, MATRIX), (own, narrow, narrow, own)) == (2,)
    assert ranges_of((MATRIX, MATRIX), (own, narrow)) == (None,)
    assert ranges_of((MATRIX, MATRIX, MATRIX), (narrow, narrow, narrow), results=2) == (0, None)


LAYOUTS = ("nchw", "nhwc", "nchw8c", "nchw16c")


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

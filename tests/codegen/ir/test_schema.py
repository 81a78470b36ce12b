"""Schemas: how they read, what lies in memory, and whose numbers stand for others."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
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

"""Schemas: how they read, and which form of a tensor each stands for."""

from __future__ import annotations

import pytest

from sartor.codegen.layer import TensorType
from sartor.codegen.schema import Schema, form_in, schema_of

IMAGE = TensorType((1, 16, 4, 4), "f32")
HALF = TensorType((1, 16, 4, 4), "f16")
MATRIX = TensorType((3, 4), "i8")


@pytest.mark.parametrize("text", ["cpu:f32@nhwc", "cpu:bf16@nhwc", "vulkan:f16@nchw16c", "cpu:i8@nd"])
def test_a_schema_reads_as_it_is_written(text: str) -> None:
    assert str(Schema.parse(text)) == text


@pytest.mark.parametrize("text", ["cpu:f32", "f32@nhwc", "cpu:f32@", "cpu:bf16@nhwc@nchw", "CPU:f32@nhwc", ""])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a schema"):
        Schema.parse(text)


@pytest.mark.parametrize(
    ("logical", "form", "text"),
    [
        (IMAGE, "nhwc", "cpu:f32@nhwc"),
        (IMAGE, "bf16@nhwc", "cpu:bf16@nhwc"),
        (HALF, "nhwc", "cpu:f16@nhwc"),
        (HALF, "bf16@nhwc", "cpu:bf16@nhwc"),
        (MATRIX, "nd", "cpu:i8@nd"),
    ],
)
def test_a_schema_names_the_element_type_and_a_form_only_where_it_is_another(
    logical: TensorType, form: str, text: str
) -> None:
    schema = schema_of("cpu", logical, form)
    assert str(schema) == text
    assert form_in(schema, logical) == form


def test_layouts_alone_do_not_join_layers() -> None:
    assert schema_of("cpu", IMAGE, "nhwc") != schema_of("cpu", IMAGE, "bf16@nhwc")
    assert schema_of("cpu", IMAGE, "nhwc").with_layout("nchw") == schema_of("cpu", IMAGE, "nchw")

"""Descriptors are written and read alike."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.variants.descriptor import (
    Descriptor,
    algorithm_of,
    dtype_in,
    without_parameters,
    write_descriptor,
)

TILED = "cpu:f32/conv2d.tiled{depth=4,register=1x64}"


def test_parameters_are_written_in_order_and_numbers_are_read() -> None:
    assert write_descriptor("cpu", "f32", "conv2d", "tiled", {"register": (1, 64), "depth": 4}) == TILED
    assert Descriptor.parse(TILED) == Descriptor("cpu", "f32", "conv2d", "tiled", {"depth": 4})


def test_a_routine_without_parameters_has_no_braces() -> None:
    assert write_descriptor("vulkan", "f16", "pool", "nhwc", {}) == "vulkan:f16/pool.nhwc"
    assert Descriptor.parse("vulkan:f16/pool.nhwc") == Descriptor("vulkan", "f16", "pool", "nhwc", {})


@pytest.mark.parametrize("text", ["", "probe", "cpu:f32", "cpu:f32/conv2d.stock:searched", "a/b"])
def test_other_texts_are_no_descriptors(text: str) -> None:
    assert Descriptor.parse(text) is None


@pytest.mark.parametrize("value", ["²", "٣", "9" * 5000])
def test_what_is_written_otherwise_is_no_number(value: str) -> None:
    assert Descriptor.parse(f"cpu:f32/conv2d.tiled{{depth={value}}}") == Descriptor("cpu", "f32", "conv2d", "tiled", {})


def test_parts_of_a_descriptor() -> None:
    assert without_parameters(TILED) == "cpu:f32/conv2d.tiled"
    assert algorithm_of(TILED) == "conv2d.tiled"
    assert dtype_in(TILED) == "f32"

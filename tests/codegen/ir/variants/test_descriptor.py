"""Descriptors are written and read alike, by old names too; a routine that fails costs itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants import routine
from sartor.codegen.ir.variants.descriptor import (
    Descriptor,
    algorithm_of,
    dtype_in,
    without_parameters,
    write_descriptor,
)
from sartor.codegen.ir.variants.renamed import RENAMED, renamed
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, variants_of
from sartor.codegen.ir.variants.traits import PLAIN_TRAITS, Traits
from sartor.codegen.routine_registry import routine_names
from tests.conftest import NOTE_FAULT

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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu:i8/matmul.block_panel_dots{columns=4,vectors=2}", "cpu:i8/matmul.block_dots{columns=4,vectors=2}"),
        ("cpu:f32/block.columns_of_panels{lanes=16,vectors=4}", "cpu:f32/block.columns_of_4{lanes=16}"),
        ("cpu:f32/block.columns_of_panels{vectors=4}", "cpu:f32/block.columns_of_4"),
        ("cpu:f32/block.columns_of_panels", "cpu:f32/block.columns_of_panels"),
        ("block_panel_dots", "block_dots"),
        ("cpu:f32/conv2d.nhwc{tile=4}", "cpu:f32/conv2d.nhwc{tile=4}"),
        ("", ""),
        ("{}", "{}"),
    ],
)
def test_an_old_name_is_read_as_the_new_one(old: str, new: str) -> None:
    assert renamed(old) == new
    assert renamed(new) == new


def test_new_names_exist_and_old_ones_do_not() -> None:
    assert not RENAMED.keys() & routine_names()
    new = {template.format(vectors=4) for template in RENAMED.values()}
    assert new <= routine_names()


TENSOR = TensorType((2,), "f32")
TASK = Task("key", LayerKind.TOLERANT, "", (TENSOR,), (), (TENSOR,))


@dataclass(frozen=True)
class Failing:
    """Raises an exception where its code is written."""

    error: Exception
    name: str = "failing"

    @property
    def traits(self) -> Traits:
        return PLAIN_TRAITS

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        return [{}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        raise self.error


def test_a_rejection_is_returned_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rejection = RejectionError("its rows are not adjacent")
    assert [*variants_of(Failing(rejection), TASK, Target.create("cpu"))] == [Rejected("its rows are not adjacent")]
    assert caplog.messages == []


def test_a_fault_is_said_and_leaves_the_routine_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routine, "note_fault", NOTE_FAULT)
    (answer,) = variants_of(Failing(ValueError("too many values to unpack")), TASK, Target.create("cpu"))
    assert answer == Rejected("it failed by a fault of its own, too many values to unpack")
    assert "the routine failing failed on the layer key by a fault of its own" in caplog.text


def test_a_fault_fails_tests() -> None:
    with pytest.raises(ValueError, match="too many"):
        list(variants_of(Failing(ValueError("too many")), TASK, Target.create("cpu")))

"""A routine that fails by a fault of its own costs itself, and is said to have one; a rejection is none."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants import routine
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, variants_of
from sartor.codegen.ir.variants.traits import PLAIN_TRAITS, Traits
from tests.conftest import NOTE_FAULT

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

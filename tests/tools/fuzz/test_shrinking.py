"""Shrinking removes parts of a failure's model and plan as long as the failure stays."""

from __future__ import annotations

from dataclasses import replace

from onnx import ModelProto

from tests.tiny_models import Builder
from tools.fuzz.failures import WRONG, Failure
from tools.fuzz.shrinking import shrunk
from tools.fuzz.trial import Setting


def _failure() -> Failure:
    b = Builder()
    conv = b.conv("conv", "x", (4, 8))
    soft = b.op("Softmax", "soft", b.op("Relu", "relu", conv), axis=1)
    b.op("Neg", "y", b.op("Tanh", "tanh", soft))
    b.op("Abs", "z", conv)
    model = b.model([("x", (1, 4, 5, 5))], [("y", (1, 8, 5, 5)), ("z", (1, 8, 5, 5))])
    forced = {"conv": "cpu:f32/conv2d.a", "soft": "cpu:f32/block.b"}
    return Failure(WRONG, "error 3", model.SerializeToString(), forced, Setting())


def _has_softmax_by_b(failure: Failure) -> Failure | None:
    wrong = "Softmax" in failure.operators and "soft" in (failure.forced or {})
    return replace(failure, message="error 4") if wrong else None


def test_only_the_node_and_the_choice_that_fail_are_left() -> None:
    found = shrunk(_failure(), _has_softmax_by_b)
    assert found.operators == ["Softmax"]
    assert dict(found.forced or {}) == {"soft": "cpu:f32/block.b"}
    assert found.message == "error 4"
    graph = ModelProto.FromString(found.model).graph
    assert ([each.name for each in graph.input], [each.name for each in graph.output]) == (["relu"], ["soft"])
    assert not graph.initializer


def test_a_failure_that_does_not_show_again_stays_as_it_is() -> None:
    failure = _failure()
    assert shrunk(failure, lambda _: None) == failure


def test_trying_ends_with_the_attempts() -> None:
    tried = []

    def never(failure: Failure) -> None:
        tried.append(failure)

    shrunk(_failure(), never, attempts=3)
    assert len(tried) == 3


def test_failures_that_look_alike_have_one_signature() -> None:
    one = replace(_failure(), message="relative error 3.1e-2, allowed is 0.001 (run 0)")
    other = replace(one, message="relative error 0.5, allowed is 0.001 (run 2)")
    assert one.signature == other.signature
    assert one.signature != replace(one, forced=None).signature

"""The first rewrite behind which a model computes something else is found, on the inputs that are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from sartor.comparison.compare_job import Answer, Question, right_outputs
from sartor.comparison.followed_rewrites import FollowedRewrite, first_beyond, followed
from sartor.onnx_model.preparing import prepare as preparing
from sartor.runtime.driver.signature import Signature, TensorSpec
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights


def _asked(built: ModelProto, path: Path, dtype: str = "float32") -> tuple[Question, Answer, list[FollowedRewrite]]:
    onnx.save(built, path)
    spec = TensorSpec("x", dtype, (3, 8))
    feeds = {"x": np.random.default_rng(1).integers(1, 9, (3, 8)).astype(dtype)}
    question = Question(path, Signature("main_graph", (spec,), ()), feeds, 1e-3, None, narrow=False)
    right = right_outputs(question)
    assert isinstance(right, Answer)
    found = followed(question, right)
    assert isinstance(found, list)
    return question, right, found


def _products() -> ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["product"], name="first"),
        node("Identity", ["product"], ["same"]),
        node("ReduceL2", ["same"], ["y"], name="norm", axes=[1]),
    ]
    return model(nodes, [("x", (3, 8), FLOAT)], [("y", (3, 1), FLOAT)], {"w": weights(8, 5)})


def _wrong(built: ModelProto) -> tuple[str, ...]:
    """Doubles the weights."""
    (weight,) = (initializer for initializer in built.graph.initializer if initializer.name == "w")
    weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), "w"))
    return ("w",)


def test_behind_every_rewrite_the_model_computes_the_same(tmp_path: Path) -> None:
    _, right, found = _asked(_products(), tmp_path / "net.onnx")
    assert "eliminate_identity" in {each.change.rewrite for each in found}
    assert all(each.error is not None and each.error < 1e-5 for each in found), found
    assert first_beyond(found, right.allowed) is None


def test_a_wrong_rewrite_is_the_first_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "SIMPLIFY", (_wrong, *preparing.SIMPLIFY))
    _, right, found = _asked(_products(), tmp_path / "net.onnx")
    first = first_beyond(found, right.allowed)
    assert first is not None
    assert (first.change.rewrite, first.change.names) == ("_wrong", ("w",))
    assert found[-1].change.rewrite != "_wrong", "what follows is run, too"


def test_types_that_others_carry_are_fed_and_compared_by_their_bits(tmp_path: Path) -> None:
    nodes = [node("BitwiseXor", ["x", "x"], ["zero"]), node("BitwiseOr", ["x", "zero"], ["y"])]
    built = model(nodes, [("x", (3, 8), TensorProto.UINT16)], [("y", (3, 8), TensorProto.UINT16)], opset=18)
    _, _, found = _asked(built, tmp_path / "net.onnx", "uint16")
    assert "carry_types" in {each.change.rewrite for each in found}
    assert {each.error for each in found} == {0.0}


def test_a_model_that_does_not_run_as_it_is_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(built: ModelProto) -> tuple[str, ...]:
        built.graph.node[0].input[1] = "nowhere"
        return ("first",)

    def mended(built: ModelProto) -> tuple[str, ...]:
        built.graph.node[0].input[1] = "w"
        return ("first",)

    monkeypatch.setattr(preparing, "SIMPLIFY", (broken, mended, *preparing.SIMPLIFY))
    _, right, found = _asked(_products(), tmp_path / "net.onnx")
    assert [each.change.rewrite for each in found if each.error is None] == ["broken"]
    assert "nowhere" in next(each.reason for each in found if each.error is None)
    assert first_beyond(found, right.allowed) is None

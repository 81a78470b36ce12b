"""Choices that are the same for all elements are taken, unless what they take has another shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.structure.decided_choices import take_decided_choices
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run, weights


def _choice(condition: Array, other: tuple[int, ...] = (2, 3)) -> ModelProto:
    given = [("x", (2, 3), FLOAT), ("other", other, FLOAT)]
    nodes = [node("Where", ["hidden", "other", "x"], ["taken"]), node("Relu", ["taken"], ["y"])]
    return model(nodes, given, ["y"], {"hidden": condition})


def _taken(built: ModelProto) -> list[str]:
    infer_shapes(built)
    take_decided_choices(built)
    return [each for item in built.graph.node if item.op_type == "Identity" for each in item.input]


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        (np.zeros((2, 1), np.bool_), ["x"]),
        (np.ones((2, 3), np.bool_), ["other"]),
        (np.array([[True], [False]]), []),
        (np.zeros((4, 2, 3), np.bool_), []),
    ],
    ids=["none", "all", "some", "more dimensions"],
)
def test_what_is_the_same_for_all_elements_is_taken(condition: Array, taken: list[str]) -> None:
    built = _choice(condition)
    feeds = {"x": weights(2, 3), "other": weights(2, 3, seed=1)}
    expected = run(built, feeds)["y"]
    assert _taken(built) == taken
    np.testing.assert_array_equal(run(built, feeds)["y"], expected)


def test_what_is_repeated_is_not_taken() -> None:
    assert _taken(_choice(np.ones((2, 3), np.bool_), (3,))) == []


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_without_a_mask_chooses_nothing_behind_its_softmax(causal: int) -> None:
    given = [(name, (1, 2, length, 8), FLOAT) for name, length in (("q", 200), ("k", 200), ("v", 200))]
    attention = helper.make_node("Attention", ["q", "k", "v"], ["y"], name="attention", is_causal=causal)
    prepared = prepare(model([attention], given, ["y"], opset=24), simplifier=lambda _: ())
    kinds = [item.op_type for item in prepared.model.graph.node]
    assert "Softmax" in kinds
    assert "Where" not in kinds[kinds.index("Softmax") :]

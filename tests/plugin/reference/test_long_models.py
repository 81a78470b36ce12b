"""ONNX Runtime on models of thousands of nodes, and its reasons why a node is not valid."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, parser, shape_inference

from sartor.onnx_model.graphs import prepared
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.expected_outputs import Expectation
from sartor.reference.refused_node import reason_alone
from sartor.reference.sample_styles import choose_styles
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

_LEVELS = onnxruntime.GraphOptimizationLevel


def _convolution() -> ModelProto:
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["y"])]
    return model(nodes, [("x", (1, 16, 6, 6), FLOAT)], ["y"], {"w": weights(16, 16, 3, 3)})


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The levels of optimisation of the sessions that are made."""
    found: list[Any] = []
    make = onnxruntime.InferenceSession

    def made(source: object, options: Any, **named: Any) -> Any:
        found.append(options.graph_optimization_level)
        return make(source, options, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", made)
    return found


@pytest.mark.parametrize(("nodes", "level"), [(2, _LEVELS.ORT_ENABLE_EXTENDED), (3, _LEVELS.ORT_ENABLE_ALL)])
def test_layouts_are_for_models_of_few_nodes(
    nodes: int, level: Any, levels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_LONG", nodes)
    known = prepare(_convolution()).model
    data = known.SerializeToString()
    feeds = {"x": np.linspace(-1, 1, 576, dtype=np.float32).reshape(1, 16, 6, 6)}
    found = Expectation([data], known, narrow=False)(feeds)
    assert choose_styles(known, data).doubts.unchecked == ()
    assert levels == [level] * 4
    expected = onnxruntime.InferenceSession(data, onnxruntime.SessionOptions()).run(None, feeds)
    np.testing.assert_allclose(found.outputs[0], expected[0], rtol=1e-4, atol=1e-4)


_HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def _model(text: str) -> ModelProto:
    return shape_inference.infer_shapes(parser.parse_model(_HEADER + text))


@pytest.mark.parametrize(
    "text",
    [
        # Zeros are no steps, divisors or scales, but a user's numbers may be.
        "g (float[4] x, int64[1] b, int64[1] e, int64[1] a, int64[1] s) => (float[n] y) { y = Slice(x, b, e, a, s) }",
        "g (int32[4] x, int32[4] d) => (int32[4] y) { y = Div(x, d) }",
        # ONNX Runtime has none for this type.
        "g (bfloat16[4] x) => (bfloat16[4] y) { y = Relu(x) }",
    ],
)
def test_valid_nodes_have_none(text: str) -> None:
    model = _model(text)
    assert reason_alone(model.graph.node[0], model) == ""


def test_what_does_not_fit_is_told() -> None:
    model = _model("g (float[1,4,8,8] x, float[6,4,3,3] w, float[5] b) => (float[1,6,6,6] y) { y = Conv(x, w, b) }")
    assert "bias" in reason_alone(model.graph.node[0], model).lower()

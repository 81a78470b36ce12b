"""Why a node is not valid, by ONNX Runtime, and what does not count as a reason."""

from __future__ import annotations

import pytest
from onnx import ModelProto, parser, shape_inference

from sartor.reference.refused_node import reason_alone

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

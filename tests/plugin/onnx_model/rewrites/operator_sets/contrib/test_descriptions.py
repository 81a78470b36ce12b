"""Old operators behind ONNX Runtime's own: their upgrade needs ranks that ONNX's inference does not find."""

from __future__ import annotations

import pytest

from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize(
    ("operator", "operands"),
    [("FastGelu", ["x"]), ("SkipLayerNormalization", ["x", "x", "g", "b"]), ("FusedMatMul", ["x", "w"])],
)
def test_softmax_of_an_old_opset_follows(operator: str, operands: list[str], prepare_quickly: Prepare) -> None:
    nodes = [
        node(operator, operands, ["a"], domain=MS),
        node("QuickGelu", ["a"], ["q"], domain=MS),
        node("Softmax", ["q"], ["y"], axis=1),
    ]
    constants = {"g": weights(8), "b": weights(8, seed=1), "w": weights(8, 6)}
    old = model(nodes, [("x", (2, 5, 8), FLOAT)], ["y"], constants, opset=11)
    feeds = sample_inputs(old, 3)
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5

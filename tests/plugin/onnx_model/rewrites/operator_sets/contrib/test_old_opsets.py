"""Old operators behind ONNX Runtime's own: their upgrade needs ranks that ONNX's inference does not find."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, model, node, relative_error, run, weights
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


@pytest.mark.parametrize("operator", ["FusedMatMul", "TransposeMatMul"])
@pytest.mark.parametrize(("left", "right"), [((4, 8), (2, 8, 5)), ((8,), (2, 8, 5)), ((2, 4, 8), (8,))])
def test_a_product_has_the_rank_of_its_longer_operand(
    operator: str, left: tuple[int, ...], right: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    """Less one for each vector."""
    nodes = [node(operator, ["a", "b"], ["m"], domain=MS), node("Softmax", ["m"], ["y"], axis=1)]
    old = model(nodes, [("a", left, FLOAT), ("b", right, FLOAT)], ["y"], opset=12)
    feeds = sample_inputs(old, 3)
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_a_norm_has_the_type_of_its_scale(operator: str, prepare_quickly: Prepare) -> None:
    """Though not that of its values, which ONNX Runtime computes in f32."""
    nodes = [node(operator, ["x", "g"], ["n"]), node("Softmax", ["n"], ["y"], axis=1)]
    old = model(nodes, [("x", (2, 5, 8), FLOAT16)], ["y"], {"g": weights(8)}, opset=12)
    feeds = {"x": weights(2, 5, 8, seed=1).astype(np.float16)}
    assert relative_error(run(prepare_quickly(old).model, feeds)["y"], run(old, feeds)["y"]) <= 1e-5

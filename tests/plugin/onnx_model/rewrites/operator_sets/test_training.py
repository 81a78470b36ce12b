"""Training written as arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.training import TRAINING_DOMAIN, expand_training
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

DOUBLE = TensorProto.DOUBLE


def test_batch_without_elements_is_refused() -> None:
    statistics = {name: np.abs(weights(3, seed=index)) for index, name in enumerate("gbmv")}
    nodes = [node("BatchNormalization", ["x", *"gbmv"], ["y", "m2", "v2"], training_mode=1)]
    built = model(nodes, [("x", (0, 3, 4), FLOAT)], ["y"], statistics)
    with pytest.raises(UnsupportedModelError, match=r"node 'batchnormalization' .* without elements"):
        expand_training(built)


@pytest.mark.parametrize("training", [None, False])
def test_a_mask_of_dropout_at_inference_is_a_constant(training: bool | None) -> None:
    constants = {} if training is None else {"r": np.float32(0.5), "t": np.bool_(training)}
    nodes = [node("Dropout", ["x", *constants], ["y", "kept"]), node("Not", ["kept"], ["dropped"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y", ("dropped", (2, 3), TensorProto.BOOL)], constants)
    expand_training(built)
    assert "Dropout" not in [each.op_type for each in built.graph.node]
    found = run(built, {"x": weights(2, 3)})
    assert not found["dropped"].any()
    assert np.array_equal(found["y"], weights(2, 3))


@pytest.mark.parametrize("rate", [FLOAT, DOUBLE])
@pytest.mark.parametrize(("operator", "states"), [("Adagrad", 1), ("Adam", 2), ("Momentum", 1)])
def test_step_on_doubles(operator: str, states: int, rate: int, prepare_quickly: Prepare) -> None:
    options = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.1} if operator == "Momentum" else {}
    tensors = ["x", "g", "s", "q"][: 2 + states]
    results = ["y", "s2", "q2"][: 1 + states]
    built = model(
        [node(operator, ["r", "t", *tensors], results, domain=TRAINING_DOMAIN, **options)],
        [("r", (), rate), ("t", (), INT64), *((name, (4,), DOUBLE) for name in tensors)],
        [(name, (4,), DOUBLE) for name in results],
    )
    built.opset_import.append(helper.make_opsetid(TRAINING_DOMAIN, 1))
    feeds = {name: np.abs(weights(4, seed=index)).astype(np.float64) for index, name in enumerate(tensors)}
    feeds |= {"r": np.array(0.25, helper.tensor_dtype_to_np_dtype(rate)), "t": np.array(3)}
    found = run(prepare_quickly(built).model, feeds)
    for name, expected in zip(results, ReferenceEvaluator(built).run(None, feeds), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4)

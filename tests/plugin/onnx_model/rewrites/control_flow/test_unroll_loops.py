"""Loops that are written out: all copies of the body share its weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_STEPS = 5


def _loop(*, is_node: bool) -> ModelProto:
    """A state that is multiplied by weights in each step, which are an initialiser of the body or a node in it."""
    table = numpy_helper.from_array(weights(8, 8, scale=0.3), "w")
    given = [helper.make_node("Constant", [], ["w"], name="table", value=table)] if is_node else []
    steps = [
        *given,
        helper.make_node("MatMul", ["state", "w"], ["next"], name="product"),
        helper.make_node("Identity", ["go"], ["going"], name="on"),
    ]
    values = [("step", INT64, []), ("go", TensorProto.BOOL, []), ("state", FLOAT, [2, 8])]
    inputs = [helper.make_tensor_value_info(*each) for each in values]
    outputs = [
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", FLOAT, [2, 8]),
    ]
    body = helper.make_graph(steps, "body", inputs, outputs, [] if is_node else [table])
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], [("x", (2, 8), FLOAT)], ["y"], {"n": np.int64(_STEPS)}
    )


@pytest.mark.parametrize("is_node", [False, True])
def test_weights_of_a_body_are_there_once(prepare_quickly: Prepare, *, is_node: bool) -> None:
    built = _loop(is_node=is_node)
    prepared = prepare_quickly(built).model
    assert sum(each.op_type == "MatMul" for each in prepared.graph.node) == _STEPS
    assert sum(list(each.dims) == [8, 8] for each in prepared.graph.initializer) == 1
    x = {"x": weights(2, 8, seed=1)}
    assert relative_error(run(prepared, x)["y"], run(built, x)["y"]) < 1e-6

"""The scale of zeros is 1, where it is more than multiplied by."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_X = [("x", (3,), FLOAT)]


def test_zeros_have_the_scale_1() -> None:
    outputs = [("q", (3,), TensorProto.UINT8), ("s", (), FLOAT), ("z", (), TensorProto.UINT8)]
    built = model([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], _X, outputs)
    ready = sartor.backend.prepare(built)
    for values in ([0, 0, 0], [0, 1, -1]):
        x = np.array(values, np.float32)
        for actual, expected in zip(ready.run([x]), run(built, {"x": x}).values(), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_scale_that_is_multiplied_by_stays(prepare_quickly: Prepare) -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    kinds = [item.op_type for item in prepare_quickly(model(nodes, _X, ["y"])).model.graph.node]
    assert "Where" not in kinds

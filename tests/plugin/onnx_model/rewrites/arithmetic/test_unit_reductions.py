"""Reductions over dimensions of one element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plugin.onnx_model.builders import FLOAT, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceLogSumExp"])
@pytest.mark.parametrize(("inputs", "keep"), [(["x"], 0), (["x"], 1), (["x", "none"], 1)])
def test_without_axes_all_are_reduced(operator: str, inputs: list[str], keep: int, prepare_quickly: Prepare) -> None:
    constants = {"none": np.zeros(0, np.int64)} if len(inputs) > 1 else {}
    nodes = [node(operator, inputs, ["y"], keepdims=keep)]
    built = model(nodes, [("x", (1, 1), FLOAT)], ["y"], constants, opset=18)
    prepared, feeds = prepare_quickly(built).model, {"x": np.array([[-2.5]], np.float32)}
    assert operator not in [item.op_type for item in prepared.graph.node]
    np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], rtol=1e-6)


def test_without_axes_none_may_be_reduced(prepare_quickly: Prepare) -> None:
    nodes = [node("ReduceL2", ["x"], ["y"], noop_with_empty_axes=1)]
    prepared = prepare_quickly(model(nodes, [("x", (1, 1), FLOAT)], ["y"], opset=18)).model
    assert "Abs" not in [item.op_type for item in prepared.graph.node]

"""Running sums that exclude the element itself."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.onnx_model.graphs.graph import attributes
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_an_excluded_element_is_not_subtracted_from_the_sum(reverse: int, axis: int, prepare_quickly: Prepare) -> None:
    values = np.array([[1e9, 1, 2], [3, np.inf, 4], [5, 6, 1e9]], np.float32)
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=reverse)]
    built = model(nodes, [("x", values.shape, FLOAT)], ["y"], {"axis": np.array(axis)}, opset=18)
    prepared = prepare_quickly(built).model
    (summed,) = [item for item in prepared.graph.node if item.op_type == "CumSum"]
    assert not attributes(summed).get("exclusive")
    assert summed.name
    np.testing.assert_array_equal(run(prepared, {"x": values})["y"], run(built, {"x": values})["y"])


def test_integers_are_subtracted(prepare_quickly: Prepare) -> None:
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=1)]
    built = model(nodes, [("x", (3,), INT64)], ["y"], {"axis": np.array(0)}, opset=18)
    built.graph.output[0].type.tensor_type.elem_type = INT64
    assert [item.op_type for item in prepare_quickly(built).model.graph.node] == ["CumSum"]

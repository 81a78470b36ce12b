"""Poolings undone: where values go whose indices are of a larger image."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sartor.backend

_WINDOW: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


def _model(size: int, *, pools: bool) -> ModelProto:
    """An image that is pooled and restored, or one that is restored by given indices."""
    image, small = [1, 2, size, size], [1, 2, size // 2, size // 2]
    given = [("p", TensorProto.FLOAT, small), ("i", TensorProto.INT64, small)]
    inputs = [("x", TensorProto.FLOAT, image)] if pools else given
    nodes = [helper.make_node("MaxPool", ["x"], ["p", "i"], **_WINDOW)] if pools else []
    nodes.append(helper.make_node("MaxUnpool", ["p", "i", "size"], ["y"], **_WINDOW))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, image)],
        [numpy_helper.from_array(np.array(image), "size")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("size", [6, 7, 9])
def test_values_return_to_where_they_came_from(size: int) -> None:
    image = np.random.default_rng(0).standard_normal((1, 2, size, size)).astype(np.float32)
    model = _model(size, pools=True)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": image})
    (found,) = sartor.backend.run_model(model, [image])
    np.testing.assert_array_equal(found, expected)


def test_a_position_outside_is_not_written() -> None:
    values = np.full((1, 2, 3, 3), 7, np.float32)
    (found,) = sartor.backend.run_model(_model(7, pools=False), [values, np.full(values.shape, 2**40)])
    assert found.shape == (1, 2, 7, 7)
    assert np.count_nonzero(found) == 1

"""Scatters that keep the larger or smaller value, and poolings undone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sartor
import sartor.backend
from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import computed_together

_ROWS = np.array([[2], [0], [-1], [2]])
_INTEGERS: tuple[type[np.integer], ...] = (np.uint8, np.uint16, np.uint32, np.int8)


def _scatter(data: Array, updates: Array, reduction: str) -> tuple[ModelProto, dict[str, Array]]:
    kind, feeds = helper.np_dtype_to_tensor_dtype(data.dtype), {"data": data, "rows": _ROWS, "updates": updates}
    inputs = [("data", data.shape, kind), ("rows", _ROWS.shape, INT64), ("updates", updates.shape, kind)]
    scatter = node("ScatterND", [*feeds], ["y"], reduction=reduction)
    return model([scatter], inputs, [("y", data.shape, kind)], opset=18), feeds


def test_large_numbers_are_not_taken_for_negative_ones_and_truth_is_more_than_untruth() -> None:
    cases, expected, random = {}, {}, np.random.default_rng(0)
    for dtype, reduction in itertools.product(_INTEGERS, ("max", "min")):
        limits, name = np.iinfo(dtype), f"{dtype.__name__} {reduction}"
        data, updates = (random.integers(limits.min, limits.max, (4, 5), dtype, endpoint=True) for _ in range(2))
        data[0, 0], updates[1, 0] = limits.max, limits.min
        cases[name], expected[name] = _scatter(data, updates, reduction), data.copy()
        getattr(np, f"{reduction}imum").at(expected[name], _ROWS[:, 0], updates)
    truth = expected["truth"] = np.eye(4, dtype=np.bool_)
    cases["truth"] = _scatter(truth, np.zeros((4, 4), np.bool_), "max")
    for name, (actual,) in computed_together(cases).items():
        assert actual.dtype == expected[name].dtype, name
        np.testing.assert_array_equal(actual, expected[name], err_msg=name)


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.BOOL])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_other_types_are_compared_in_those_that_contain_them(
    kind: int, reduction: str, prepare_quickly: Prepare
) -> None:
    """ONNX Runtime scatters them in float32."""
    indices = ints(0, 2, -1, 0, 1, 1, 2, 0).reshape(2, 4)
    narrow = [node("Cast", [name], [f"{name}_narrow"], name=f"cast_{name}", to=kind) for name in "xu"]
    wide = [node("Cast", [f"{name}_narrow"], [f"{name}_wide"], name=f"widen_{name}", to=FLOAT) for name in "xu"]
    inputs = [("x", (3, 5), FLOAT), ("u", (2, 4), FLOAT)]
    scatter = node("ScatterElements", ["x_narrow", "i", "u_narrow"], ["z"], reduction=reduction)
    built = model([*narrow, scatter, node("Cast", ["z"], ["y"], to=FLOAT)], inputs, ["y"], {"i": indices}, opset=18)
    scatter = node("ScatterElements", ["x_wide", "i", "u_wide"], ["y"], reduction=reduction)
    expected = model([*narrow, *wide, scatter], inputs, ["y"], {"i": indices}, opset=18)
    feeds = {"x": np.maximum(weights(3, 5), 0), "u": np.maximum(weights(2, 4, seed=1), 0)}
    np.testing.assert_array_equal(run(prepare_quickly(built).model, feeds)["y"], run(expected, feeds)["y"])


def test_there_is_no_wider_type_than_64_bits() -> None:
    best = helper.make_node("ScatterND", ["data", "rows", "updates"], ["y"], name="best", reduction="max")
    data = np.zeros((4, 5), np.uint64)
    with pytest.raises(UnsupportedModelError, match="compares uint64; cast to int64 around it"):
        sartor.backend.run_node(best, [data, _ROWS, data])


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

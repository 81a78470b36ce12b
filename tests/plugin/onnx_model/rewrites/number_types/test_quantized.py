"""Quantised operators that ONNX Runtime computes otherwise than their names say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_SHAPES = {"x": [1, 6, 6, 6], "y": [1, 6, 4, 3]}


def test_averages_that_count_padding_and_round_up_are_refused(prepare_quickly: Prepare) -> None:
    options: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "pads": [1, 0, 1, 1],
        "strides": [2, 2],
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    operands = {"s": np.float32(0.03), "z": np.uint8(5)}
    node = helper.make_node(
        *("QLinearAveragePool", ["x", "s", "z", "s", "z"], ["y"]), name="mean", domain="com.microsoft", **options
    )
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in _SHAPES.items()]
    constants = [numpy_helper.from_array(np.asarray(operand), name) for name, operand in operands.items()]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(UnsupportedModelError, match=r"node 'mean' .* counts padding and rounds up"):
        prepare_quickly(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def _product(operator: str, weight: Array, zero: Array, **attributes: Any) -> ModelProto:
    """A quantised layer of uint8 whose weights' scales ``s`` are an input."""
    contrib = operator == "QGemm"
    names = ["x", "xs", "xz", "w", "s", "z", *([""] if contrib else []), "ys", "yz"]
    constants = {
        **{"xs": np.float32(0.1), "xz": np.uint8(100), "w": weight, "z": zero},
        **{"ys": np.float32(0.9), "yz": np.uint8(120)},
    }
    shape = (1, 2, 4, 4) if operator == "QLinearConv" else (2,) * (weight.ndim - 1) + (3,)
    inputs = [("x", shape, TensorProto.UINT8), ("s", zero.shape, FLOAT)]
    item = node(operator, names, ["y"], domain=MS if contrib else "", **attributes)
    return model([item], inputs, [("y", None, TensorProto.UINT8)], constants)


def _bytes(kind: type[np.int8] | type[np.uint8], *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(kind)


_SCALES = np.array([0.1, 0.02, 0.05], np.float32)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("operator", "shape", "attributes"), [("QLinearConv", (3, 2, 2, 2), {}), ("QGemm", (3, 3), {"transB": 1})]
)
def test_scales_of_channels_may_be_inputs(
    operator: str, shape: tuple[int, ...], attributes: dict[str, Any], count: int, prepare_quickly: Prepare
) -> None:
    built = _product(operator, _bytes(np.int8, *shape), np.zeros(count, np.int8), **attributes)
    feeds = {"x": _bytes(np.uint8, *(each.dim_value for each in built.graph.input[0].type.tensor_type.shape.dim))}
    feeds["s"] = _SCALES[:count]
    np.testing.assert_array_equal(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"])


def test_scales_of_columns_of_a_stack_of_matrices_may_be_inputs(prepare_quickly: Prepare) -> None:
    """ONNX Runtime takes none for a stack, so the expected result is ONNX's own."""
    built = _product("QLinearMatMul", _bytes(np.int8, 2, 3, 3), np.zeros(3, np.int8))
    feeds = {"x": _bytes(np.uint8, 2, 2, 3), "s": _SCALES}
    found = run(prepare_quickly(built).model, feeds)["y"]
    (expected,) = ReferenceEvaluator(built).run(None, feeds)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_given", [False, True])
def test_one_scale_with_zero_points_of_channels(is_given: bool, prepare_quickly: Prepare) -> None:
    built = _product("QLinearConv", _bytes(np.int8, 3, 2, 2, 2), np.array([3, -4, 5], np.int8))
    del built.graph.input[1].type.tensor_type.shape.dim[:]
    feeds: dict[str, Array] = {"x": _bytes(np.uint8, 1, 2, 4, 4), "s": np.array(0.1, np.float32)}
    if not is_given:
        del built.graph.input[1]
        built.graph.initializer.append(numpy_helper.from_array(feeds.pop("s"), "s"))
    expected = run(built, feeds)["y"]
    prepared = prepare_quickly(built).model
    np.testing.assert_array_equal(run(prepared, feeds)["y"], expected)
    take_out_quantisation(prepared)
    assert np.abs(run(prepared, feeds)["y"].astype(int) - expected.astype(int)).max() <= 1

"""Quantised numbers: as arithmetic, unsigned without a zero point, and by operators that differ from their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.onnx_model.rewrites.number_types.unsigned_products import with_widened_operands
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("scale", [0.5, [0.5, 2.0**-10]])
def test_f16_to_uint16_saturates(scale: float | list[float], prepare_quickly: Prepare) -> None:
    constants: dict[str, Array] = {"s": np.array(scale, np.float16), "z": np.full(np.shape(scale), 65530, np.uint16)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    kind = TensorProto.UINT16
    built = model(nodes, [("x", (3, 2), FLOAT16)], [("y", (3, 2), kind)], constants, opset=21)
    feeds = {"x": np.array([[-1.5, -2], [2.5, 0], [60000, -60000]], np.float16)}
    found = run(prepare_quickly(built).model, feeds)["y"].view(np.uint16)
    np.testing.assert_array_equal(found, run(built, feeds)["y"])
    assert helper.np_dtype_to_tensor_dtype(found.dtype) == kind


@pytest.mark.parametrize("kind", [TensorProto.UINT16, TensorProto.INT16])
def test_16_bits_are_dequantised_to_f16_by_way_of_f32(kind: int, prepare_quickly: Prepare) -> None:
    """65535 is infinite in f16, but 65535 / 4 is not. ONNX Runtime would hide that: it computes f16 in f32."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants: dict[str, Array] = {"s": np.array(0.25, np.float16), "z": np.array(3, dtype)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["y"])]
    built = model(nodes, [("x", (2,), kind)], [("y", (2,), FLOAT16)], constants, opset=21)
    prepared = prepare_quickly(built).model
    casts = [item.attribute[0].i for item in prepared.graph.node if item.op_type == "Cast"]
    assert [to for to in casts if to in (FLOAT, FLOAT16)] == [FLOAT, FLOAT16]
    feeds = {"x": np.array([np.iinfo(dtype).max, 7], dtype)}
    found = run(prepared, {"x": feeds["x"].view(np.int16)})["y"]
    np.testing.assert_array_equal(found, run(built, feeds)["y"])


@pytest.mark.parametrize(("groups", "channels"), [(1, 3), (2, 6), (4, 4)])
def test_weights_have_a_zero_point_for_each_channel(groups: int, channels: int, prepare_quickly: Prepare) -> None:
    """ONNX Runtime takes only one for all weights, so the expected result is ONNX's own."""
    depth = 4 // groups
    inputs = [("x", (1, 4, 5, 6), TensorProto.UINT8), ("w", (channels, depth, 2, 2), TensorProto.UINT8)]
    points = np.array([0, 130, 255, 1, 2, 3], np.uint8)[:channels]
    constants: dict[str, Array] = {"z": np.array(7, np.uint8), "p": points}
    nodes = [node("ConvInteger", ["x", "w", "z", "p"], ["y"], pads=[1, 1, 0, 2], strides=[2, 1], group=groups)]
    built = model(nodes, inputs, [("y", None, TensorProto.INT32)], constants)
    generator = np.random.default_rng(0)
    feeds = {name: generator.integers(0, 256, shape).astype(np.uint8) for name, shape, _ in inputs}
    padded = np.pad(feeds["x"].astype(np.int64) - 7, ((0, 0), (0, 0), (1, 0), (1, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))[:, :, ::2]
    windows = windows.reshape(groups, depth, *windows.shape[2:])
    shifted = (feeds["w"].astype(np.int64) - points.reshape(-1, 1, 1, 1)).reshape(groups, -1, depth, 2, 2)
    found = run(prepare_quickly(built).model, feeds)["y"]
    expected = np.einsum("gchwij,gocij->gohw", windows, shifted)
    np.testing.assert_array_equal(found, expected.reshape(1, channels, *expected.shape[2:]))


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT16])
@pytest.mark.parametrize(("scale", "result"), [(FLOAT, FLOAT16), (FLOAT16, FLOAT)])
def test_dequantised_values_have_another_type_than_their_scale(
    scale: int, result: int, kind: int, prepare_quickly: Prepare
) -> None:
    """Also behind an operator that moves elements, and of constants that become floats."""
    dtype, number = (helper.tensor_dtype_to_np_dtype(each) for each in (kind, scale))
    constants: dict[str, Array] = {
        "s": np.array(0.1, number),
        "z": np.array(3, dtype),
        "w": np.arange(4, dtype=dtype)[None],
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("DequantizeLinear", ["t", "s", "z"], ["d"], output_dtype=result),
        node("DequantizeLinear", ["w", "s", "z"], ["e"], name="weights", output_dtype=result),
        node("Concat", ["d", "e"], ["y"], axis=0),
    ]
    built = model(nodes, [("x", (4, 2), kind)], [("y", (3, 4), result)], constants, opset=23)
    x = np.arange(8).astype(dtype).reshape(4, 2) * 15
    prepared = prepare_quickly(built).model
    expected, given = run(built, {"x": x})["y"], x.view(np.int16) if kind == TensorProto.UINT16 else x
    np.testing.assert_array_equal(run(prepared, {"x": given})["y"], expected)
    take_out_quantisation(prepared)
    np.testing.assert_array_equal(run(prepared, {"x": given})["y"], expected)


@pytest.mark.parametrize("kind", [TensorProto.INT32, FLOAT16])
def test_what_is_quantised_has_another_type_than_its_scale(kind: int, prepare_quickly: Prepare) -> None:
    constants: dict[str, Array] = {"s": np.array(0.5, np.float32), "z": np.array(3, np.int8)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    built = model(nodes, [("x", (5,), kind)], ["y"], constants, opset=23)
    feeds = {"x": np.array([-100, -65, 1, 3, 100], helper.tensor_dtype_to_np_dtype(kind))}
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    assert ranges["y"] == QuantisedRange(0.5, 3, "int8")
    assert run(prepared, feeds)["y"].tolist() == [-65.5, -65, 1, 3, 62]


@pytest.mark.parametrize(
    ("operands", "kind", "is_changed"),
    [(["a", "b"], TensorProto.UINT8, True), (["a", "b"], TensorProto.INT8, False), ("abzz", TensorProto.UINT8, False)],
)
def test_other_products_are_not_copied(operands: list[str], kind: int, *, is_changed: bool) -> None:
    given = [("a", (3, 8), kind), ("b", (8, 4), kind), ("z", (), kind)]
    built = model([node("MatMulInteger", list(operands), ["y"])], given, [("y", (3, 4), TensorProto.INT32)])
    before = built.SerializeToString()
    assert (with_widened_operands(built) is not built) == is_changed
    assert built.SerializeToString() == before


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

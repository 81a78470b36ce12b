"""Quantisation written as arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, Array, model, node, run
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

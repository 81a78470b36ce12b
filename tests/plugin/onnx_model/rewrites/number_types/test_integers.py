"""Quantisation written as arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

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


def test_weights_have_a_zero_point_for_each_channel(prepare_quickly: Prepare) -> None:
    """ONNX Runtime takes only one for all weights, so the expected result is ONNX's own."""
    inputs = [("x", (1, 2, 5, 6), TensorProto.UINT8), ("w", (3, 2, 2, 2), TensorProto.UINT8)]
    constants: dict[str, Array] = {"z": np.array(7, np.uint8), "p": np.array([0, 130, 255], np.uint8)}
    nodes = [node("ConvInteger", ["x", "w", "z", "p"], ["y"], pads=[1, 1, 0, 2], strides=[2, 1])]
    built = model(nodes, inputs, [("y", None, TensorProto.INT32)], constants)
    generator = np.random.default_rng(0)
    feeds = {name: generator.integers(0, 256, shape).astype(np.uint8) for name, shape, _ in inputs}
    padded = np.pad(feeds["x"].astype(np.int64) - 7, ((0, 0), (0, 0), (1, 0), (1, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))[:, :, ::2]
    shifted = feeds["w"].astype(np.int64) - constants["p"].reshape(3, 1, 1, 1)
    found = run(prepare_quickly(built).model, feeds)["y"]
    np.testing.assert_array_equal(found, np.einsum("nchwij,ocij->nohw", windows, shifted))

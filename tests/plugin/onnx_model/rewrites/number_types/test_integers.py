"""Quantisation written as arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.plugin.onnx_model.builders import FLOAT16, Array, model, node, run
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

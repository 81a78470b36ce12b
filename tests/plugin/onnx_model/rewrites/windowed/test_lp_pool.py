"""Powers of windows whose number is rounded up, or whose geometry IREE's own lowering does not know."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sartor.backend

_CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "fitting": ((9, 7), {"kernel_shape": [3, 3], "strides": [3, 2]}),
    "rest": ((8, 7), {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}),
    "after the input": ((7, 8), {"kernel_shape": [1, 4], "strides": [3, 2], "pads": [0, 2, 0, 3]}),
    "signal after the input": ((6,), {"kernel_shape": [1], "strides": [4]}),
    "signal of one window": ((3,), {"kernel_shape": [4], "strides": [4], "pads": [0, 3]}),
    "dilated": ((9, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [2, 1, 1, 1], "dilations": [2, 3]}),
    "not dilated": ((3, 7), {"kernel_shape": [3, 2], "strides": [3, 1], "pads": [1, 0, 1, 0], "dilations": [1, 1]}),
    "without padding": ((8, 7), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", _CASES)
def test_as_onnx_runtime_does(case: str) -> None:
    """All orders, rounded up or not, in one model, which runs on numbers of all scales."""
    sizes, options = _CASES[case]
    image = np.random.default_rng(0).standard_normal((1, 2, *sizes)).astype(np.float32)
    nodes = [
        helper.make_node("LpPool", ["x"], [f"y{order}{ceil_mode}"], p=order, ceil_mode=ceil_mode, **options)
        for order, ceil_mode in itertools.product((1, 2, 3), (0, 1))
    ]
    # The sizes are left to inference, which counts a window after the input.
    results = [
        helper.make_tensor_value_info(y, TensorProto.FLOAT, [f"{y}d{axis}" for axis in range(image.ndim)])
        for y in (node.output[0] for node in nodes)
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)
    graph = helper.make_graph(nodes, "graph", [value], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    reference, compiled = onnxruntime.InferenceSession(model.SerializeToString()), sartor.backend.prepare(model)
    for scale in (1e-3, 1.0, 1e3):
        scaled = image * np.float32(scale)
        for found, wanted in zip(compiled.run([scaled]), reference.run(None, {"x": scaled}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("opset", [11, 17, 18])
def test_of_every_opset(opset: int) -> None:
    image = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype(np.float32)
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 0, 0, 2], strides=[1, 2], p=3)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)
    graph = helper.make_graph([node], "graph", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": image})
    (found,) = sartor.backend.run_model(model, [image])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

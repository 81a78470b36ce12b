"""ONNX Runtime's fused operators in f32, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sartor.backend

_SHAPE = (2, 3, 8)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("options", [{}, {"epsilon": 1e-5}], ids=["usual", "given"])
def test_small_numbers_are_normalised_by_the_usual_epsilon(op_type: str, scale: float, options: dict[str, Any]) -> None:
    """Which is far below that of the standard's layer normalisation."""
    random = np.random.default_rng(0)
    feeds = {name: (random.standard_normal(_SHAPE) * scale).astype(np.float32) for name in ("x", "skip")}
    feeds["gamma"] = random.standard_normal(_SHAPE[-1:]).astype(np.float32)
    node = helper.make_node(op_type, [*feeds], ["y"], domain="com.microsoft", **options)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, each.shape) for name, each in feeds.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "graph", values, [result]), opset_imports=opsets, ir_version=9)
    (found,) = sartor.backend.run_model(model, list(feeds.values()))
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

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


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize("mask", [None, [[1, 1, 0], [1, 1, 1]]], ids=["all", "masked"])
def test_embeddings_are_normalised_and_counted(mask: list[list[int]] | None, scale: float) -> None:
    """Without a mask, ONNX Runtime counts 0 of each sequence."""
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray[Any, Any]] = {"ids": random.integers(0, 9, (2, 3)).astype(np.int32)}
    feeds["kinds"] = np.array([[0, 0, 1]] * 2, np.int32)
    shapes = {"words": (9, 8), "places": (7, 8), "segments": (2, 8), "gamma": (8,), "beta": (8,)}
    tables = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds |= {name: each * np.float32(scale if each.ndim == 2 else 1) for name, each in tables.items()}
    if mask is not None:
        feeds["mask"] = np.array(mask, np.int32)
    node = helper.make_node("EmbedLayerNormalization", [*feeds], ["y", "counts"], domain="com.microsoft")
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    results = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE),
        helper.make_tensor_value_info("counts", TensorProto.INT32, _SHAPE[:1]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "graph", values, results), opset_imports=opsets, ir_version=9)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for found, wanted in zip(sartor.backend.run_model(model, list(feeds.values())), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

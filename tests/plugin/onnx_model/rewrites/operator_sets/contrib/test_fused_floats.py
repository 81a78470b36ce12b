"""ONNX Runtime's fused operators in f32, beside ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import computed_together

_SHAPE = (2, 3, 8)


def test_small_numbers_are_normalised_by_the_usual_epsilon() -> None:
    """Which is far below that of the standard's layer normalisation."""
    kinds = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    given: tuple[dict[str, Any], ...] = ({}, {"epsilon": 1e-5})
    cases = {f"{each}": _normalising(*each) for each in itertools.product(kinds, (1.0, 1e-3), given)}
    for name, (found,) in computed_together(cases).items():
        model, feeds = cases[name]
        (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def _normalising(op_type: str, scale: float, options: dict[str, Any]) -> tuple[ModelProto, dict[str, Array]]:
    random = np.random.default_rng(0)
    feeds = {name: (random.standard_normal(_SHAPE) * scale).astype(np.float32) for name in ("x", "skip")}
    feeds["gamma"] = random.standard_normal(_SHAPE[-1:]).astype(np.float32)
    node = helper.make_node(op_type, [*feeds], ["y"], domain="com.microsoft", **options)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, feed.shape) for name, feed in feeds.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "graph", values, [result])
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


def test_embeddings_are_normalised_and_counted() -> None:
    """Without a mask, ONNX Runtime counts 0 of each sequence."""
    masks = (None, [[1, 1, 0], [1, 1, 1]])
    cases = {f"{each}": _embedding(*each) for each in itertools.product(masks, (1.0, 1e-3, 1e3))}
    for name, found in computed_together(cases).items():
        model, feeds = cases[name]
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def _embedding(mask: list[list[int]] | None, scale: float) -> tuple[ModelProto, dict[str, Array]]:
    random = np.random.default_rng(0)
    feeds: dict[str, np.ndarray[Any, Any]] = {"ids": random.integers(0, 9, (2, 3)).astype(np.int32)}
    feeds["kinds"] = np.array([[0, 0, 1]] * 2, np.int32)
    shapes = {"words": (9, 8), "places": (7, 8), "segments": (2, 8), "gamma": (8,), "beta": (8,)}
    tables = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds |= {name: table * np.float32(scale if table.ndim == 2 else 1) for name, table in tables.items()}
    if mask is not None:
        feeds["mask"] = np.array(mask, np.int32)
    node = helper.make_node("EmbedLayerNormalization", [*feeds], ["y", "counts"], domain="com.microsoft")
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feed.dtype), feed.shape)
        for name, feed in feeds.items()
    ]
    results = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, _SHAPE),
        helper.make_tensor_value_info("counts", TensorProto.INT32, _SHAPE[:1]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "graph", values, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


@pytest.mark.parametrize("axis", [1, -2, 2])
@pytest.mark.parametrize("shape", [(3, 8), (8,), (1,), ()])
def test_squares_are_averaged_over_the_dimensions_from_axis_on(
    axis: int, shape: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    """Whatever the scale spans of them."""
    norm = node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=axis)
    built = model([norm], [("x", _SHAPE, FLOAT)], ["y"], {"g": weights(*shape)})
    prepared, feeds = prepare_quickly(built).model, {"x": weights(*_SHAPE, seed=1)}
    assert "ReduceProd" not in [item.op_type for item in prepared.graph.node]
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= 1e-6


def test_a_computed_scale_does_not_change_the_average(prepare_quickly: Prepare) -> None:
    nodes = [
        node("QuickGelu", ["g"], ["scale"], domain=MS),
        node("SimplifiedLayerNormalization", ["x", "scale"], ["y"]),
    ]
    built = model(nodes, [("x", _SHAPE, FLOAT)], ["y"], {"g": weights(8)})
    feeds = {"x": weights(*_SHAPE, seed=1)}
    assert relative_error(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"]) <= 1e-6


@pytest.mark.parametrize("op_type", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize(("kind", "scale"), [(FLOAT16, np.float32), (FLOAT, np.float16)])
def test_a_norm_returns_the_type_of_its_scale(
    op_type: str, kind: int, scale: type[np.floating], prepare_quickly: Prepare
) -> None:
    """Exporters in f16 may leave parameters in f32."""
    constants = {"g": weights(8).astype(scale)}
    operands = ["x", "g"]
    if op_type == "LayerNormalization":
        constants["b"] = weights(8, seed=2).astype(scale)
        operands.append("b")
    result = ("y", None, helper.np_dtype_to_tensor_dtype(np.dtype(scale)))
    built = model([node(op_type, operands, ["y"])], [("x", _SHAPE, kind)], [result], constants, opset=16)
    feeds = {"x": weights(*_SHAPE, seed=1).astype(helper.tensor_dtype_to_np_dtype(kind))}
    error = relative_error(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"])
    assert error <= (1e-6 if scale is np.float32 else 1e-3)

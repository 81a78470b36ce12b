"""ONNX Runtime's fused operators in f32 and half precision, and inverses, beside ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter, UnknownTypeError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, Value, model, node, relative_error, run, weights
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


_WIDTH = 32
_ALLOWED = 3e-3


def _activation(operator: str) -> NodeProto:
    operands = ["m", "c"] if operator in ("BiasGelu", "FastGelu") else ["m"]
    return node(operator, operands, ["y"], domain=MS)


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
@pytest.mark.parametrize("skip", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_block_of_a_transformer(skip: str, operator: str, prepare_quickly: Prepare) -> None:
    operands = ["x", "r", "g"] + (["b"] if skip == "SkipLayerNormalization" else [])
    nodes = [
        node(skip, operands, ["n"], domain=MS, epsilon=1e-5),
        node("MatMul", ["n", "w"], ["m"]),
        _activation(operator),
    ]
    constants: dict[str, Any] = {name: weights(_WIDTH, seed=seed) for seed, name in enumerate(("g", "b", "c"))}
    constants["w"] = weights(_WIDTH, _WIDTH, scale=0.2)
    halves = {name: values.astype(np.float16) for name, values in constants.items()}
    inputs: list[Value] = [("x", (1, 4, _WIDTH), FLOAT16), ("r", (1, 4, _WIDTH), FLOAT16)]
    built = model(nodes, inputs, [("y", (1, 4, _WIDTH), FLOAT16)], halves)
    prepared, feeds = prepare_quickly(built).model, sample_inputs(built, 3)
    kinds = {value.type.tensor_type.elem_type for value in prepared.graph.value_info if value.name == "m"}
    assert kinds == {TensorProto.FLOAT16}
    assert relative_error(run(prepared, feeds)["y"], run(built, feeds)["y"]) <= _ALLOWED


@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_by_weights_in_few_bits_between_others(bits: int, prepare_quickly: Prepare) -> None:
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (_WIDTH, 1, _WIDTH * bits // 8)).astype(np.uint8)
    scales = (random.standard_normal((_WIDTH, 1)) * 0.01).astype(np.float16)
    nodes = [
        node("QuickGelu", ["x"], ["q"], domain=MS),
        node("MatMulNBits", ["q", "w", "s"], ["m"], domain=MS, K=_WIDTH, N=_WIDTH, bits=bits, block_size=_WIDTH),
        node("Gelu", ["m"], ["y"], domain=MS),
    ]
    built = model(
        nodes, [("x", (3, _WIDTH), FLOAT16)], [("y", (3, _WIDTH), FLOAT16)], {"w": packed, "s": scales}, opset=21
    )
    feeds = sample_inputs(built, 3)
    assert relative_error(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"]) <= _ALLOWED


def test_no_type_is_guessed() -> None:
    """Of what ONNX Runtime's operators read."""
    built = model([node("Gelu", ["q"], ["y"], domain=MS)], [("x", (2, 8), FLOAT16)], ["y"])
    emit = Emitter(GraphEditor(built.graph), built.graph.node[0])
    with pytest.raises(UnknownTypeError, match=r"node 'gelu' .* reads 'q', whose type is not known"):
        emit.like(0.5, "q", "half")


_RANDOM = np.random.default_rng(0)


def _inverse(*shape: int, dtype: type = np.float32) -> ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model([node("Inverse", ["x"], ["y"], domain=MS)], [("x", shape, kind)], [("y", shape, kind)])


def _rows_exchanged(count: int, rows: int) -> Array:
    """Matrices whose diagonals are nought, so that no row can eliminate its own column."""
    turned = np.roll(np.eye(rows) * 3 + 0.1 * _RANDOM.standard_normal((count, rows, rows)), 1, axis=1)
    turned[:, range(rows), range(rows)] = 0
    return turned


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (8, 4, 4), (2, 3, 5, 5), (1, 16, 16), (0, 3, 3), (2, 0, 0)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float16, 5e-3), (np.float64, 1e-12)])
def test_inverse_is_that_of_onnx_runtime(
    shape: tuple[int, ...], dtype: type, tolerance: float, prepare_quickly: Prepare
) -> None:
    built = _inverse(*shape, dtype=dtype)
    x = (_RANDOM.standard_normal(shape) + 4 * shape[-1] ** 0.5 * np.eye(shape[-1])).astype(dtype)
    prepared = prepare_quickly(built, {"x": shape}).model
    found, right = (run(each, {"x": x})["y"] for each in (prepared, built))
    assert found.dtype == right.dtype
    assert found.shape == right.shape
    if right.size:
        assert relative_error(found, right) <= tolerance


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_rows_are_exchanged(rows: int, prepare_quickly: Prepare) -> None:
    x = _rows_exchanged(5, rows).astype(np.float32)
    found = run(prepare_quickly(_inverse(5, rows, rows)).model, {"x": x})["y"]
    np.testing.assert_allclose(found, np.linalg.inv(x.astype(np.float64)), rtol=1e-4, atol=1e-6)


def test_tiny_pivots_are_passed_over(prepare_quickly: Prepare) -> None:
    """Eliminating by the first number would leave no digit."""
    x = np.array([[[1e-9, 1.0], [1.0, 1.0]]], np.float32)
    found = run(prepare_quickly(_inverse(1, 2, 2)).model, {"x": x})["y"]
    np.testing.assert_allclose(found, [[[-1, 1], [1, 0]]], atol=1e-6)


def test_one_matrix_without_inverse_leaves_others_right(prepare_quickly: Prepare) -> None:
    x = np.stack([np.ones((3, 3)), np.diag([1.0, 2.0, 4.0])]).astype(np.float32)
    found = run(prepare_quickly(_inverse(2, 3, 3)).model, {"x": x})["y"]
    assert not np.isfinite(found[0]).all()
    np.testing.assert_array_equal(found[1], np.diag([1.0, 0.5, 0.25]))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 4), r"\(com.microsoft.Inverse\) inverts an operand of shape \[2, 3, 4\], whose last two sizes differ"),
        ((17, 17), r"\(com.microsoft.Inverse\) inverts matrices of 17 rows, and 16 are the most; end the model before"),
    ],
)
def test_what_is_not_inverted(shape: tuple[int, ...], message: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(_inverse(*shape))


def test_an_inverse_of_a_computed_value_behind_an_old_operator(prepare_quickly: Prepare) -> None:
    nodes = [node("Inverse", ["x"], ["i"], domain=MS), node("Softmax", ["i"], ["y"], axis=1)]
    built = model(nodes, [("x", (2, 3, 3), FLOAT)], ["y"], opset=11)
    x = (_RANDOM.standard_normal((2, 3, 3)) + 3 * np.eye(3)).astype(np.float32)
    found, right = (run(each, {"x": x})["y"] for each in (prepare_quickly(built).model, built))
    assert relative_error(found, right) <= 1e-5

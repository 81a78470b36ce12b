"""Arguments at the edges: angles of many turns, hyperbolic functions, signs, and shifts by the width of a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import sartor
import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_FUNCTIONS = {"Sin": np.sin, "Cos": np.cos, "Tan": np.tan}
_ANGLES = np.concatenate([np.geomspace(1e-3, 2e7, 300), [0, 355, 710, 22, 104, 1e5, 123450]])


def _within(angles: Array, prepare: Prepare) -> Array:
    """The angles from which the prepared model takes a sine."""
    kind = helper.np_dtype_to_tensor_dtype(angles.dtype)
    built = model([node("Sin", ["x"], ["y"])], [("x", angles.shape, kind)], [("y", angles.shape, kind)])
    prepared = prepare(built).model
    sine = next(each for each in prepared.graph.node if each.op_type == "Sin")
    prepared.graph.output.append(helper.make_empty_tensor_value_info(sine.input[0]))
    return np.asarray(run(prepared, {"x": angles})[sine.input[0]])


@pytest.mark.parametrize("sign", [1, -1])
def test_whole_turns_are_subtracted_from_sizes(sign: int, prepare_quickly: Prepare) -> None:
    angles = _ANGLES.astype(np.float32)
    within = _within(sign * angles, prepare_quickly)
    assert (np.abs(within) < 4).all()
    np.testing.assert_allclose(np.sin(within.astype(float)), np.sin(angles.astype(float)), atol=3e-7)
    np.testing.assert_allclose(np.cos(within.astype(float)), np.cos(angles.astype(float)), atol=3e-7)


def test_small_angles_do_not_change(prepare_quickly: Prepare) -> None:
    angles = np.array([0, 1e-30, 3.1, -3.1], np.float32)
    np.testing.assert_array_equal(_within(angles, prepare_quickly), np.abs(angles))


def test_there_is_a_bound_beyond_which_angles_are_0(prepare_quickly: Prepare) -> None:
    within = _within(np.array([1e8, -3e38, np.inf, -np.inf, np.nan], np.float32), prepare_quickly)
    np.testing.assert_array_equal(within, [0, 0, np.nan, np.nan, np.nan])


def test_results_are_right_over_the_whole_range() -> None:
    numbers = np.random.default_rng(0)
    sizes = np.concatenate([[0, 1e-30, 1e-6], _ANGLES, numbers.uniform(0, 2.3e7, 20000), numbers.uniform(0, 100, 5000)])
    angles = np.concatenate([sizes, -sizes]).astype(np.float32)
    values = [(name, angles.shape, FLOAT) for name in ("x", *_FUNCTIONS)]
    built = model([node(name, ["x"], [name]) for name in _FUNCTIONS], values[:1], values[1:])
    sine, cosine, tangent = sartor.backend.prepare(built).run([angles])
    exact = angles.astype(float)
    np.testing.assert_allclose(sine, np.sin(exact), rtol=0, atol=5e-7)
    np.testing.assert_allclose(cosine, np.cos(exact), rtol=0, atol=5e-7)
    # The tangent of the difference of two angles, of their tangents.
    assert (np.abs(tangent - np.tan(exact)) <= 5e-7 * np.abs(1 + tangent * np.tan(exact))).all()
    for actual, function in ((sine, np.sin), (tangent, np.tan)):
        is_small = np.abs(angles) < 0.5
        np.testing.assert_allclose(actual[is_small], function(exact[is_small]), rtol=3e-7)
        np.testing.assert_array_equal(np.signbit(actual[angles == 0]), np.signbit(angles[angles == 0]))


@pytest.mark.parametrize("operator", list(_FUNCTIONS))
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_the_functions_keep_their_results(operator: str, kind: type, prepare_quickly: Prepare) -> None:
    angles: Array = np.array([0, 0.5, -1, 3, 100, -1000.5, 6e4], kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    built = model([node(operator, ["x"], ["y"])], [("x", angles.shape, element)], [("y", angles.shape, element)])
    expected = _FUNCTIONS[operator](angles.astype(float))
    actual = run(prepare_quickly(built).model, {"x": angles})["y"]
    np.testing.assert_allclose(actual, expected, rtol=2e-3 if kind is np.float16 else 2e-6)


_HYPERBOLIC_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "Asin": np.arcsin,
    "Atanh": np.arctanh,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
}
_SIZES = np.array([0, 6.2e-5, 1e-4, 1e-3, 0.1, 0.5, 0.999, 1, 1.001, 1.5, 2, 2.01, 10, 88, 89.2, 1e4, np.inf, np.nan])
_LARGE = np.array([6e4, 1.2e5, 3e7, 1e19, 1e20, 3e38])


def _computed(operator: str, values: Array, prepare: Prepare) -> tuple[Array, list[str]]:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    built = model([node(operator, ["x"], ["y"])], [("x", values.shape, kind)], [("y", values.shape, kind)])
    prepared = prepare(built).model
    # ONNX Runtime computes Atanh in float32 alone.
    with np.errstate(all="ignore"):
        results: Any = ReferenceEvaluator(prepared).run(None, {"x": values})
    return np.asarray(results[0]), [each.op_type for each in prepared.graph.node]


@pytest.mark.parametrize("operator", ["Sinh", "Cosh", "Asinh", "Acosh", "Atanh"])
@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_results_are_right_at_every_size(operator: str, kind: type, tolerance: float, prepare_quickly: Prepare) -> None:
    sizes = np.concatenate([_SIZES, _LARGE, [709.5] if kind is np.float64 else []])
    values: Array = np.concatenate([sizes, -sizes]).astype(kind)
    actual, kinds = _computed(operator, values, prepare_quickly)
    assert operator not in kinds or operator == "Atanh"
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            actual, _HYPERBOLIC_FUNCTIONS[operator](values.astype(float)).astype(kind), rtol=tolerance
        )


@pytest.mark.parametrize("operator", list(_HYPERBOLIC_FUNCTIONS))
def test_short_floats_are_computed_in_float32(operator: str, prepare_quickly: Prepare) -> None:
    values = np.concatenate([_SIZES, -_SIZES]).astype(np.float16)
    actual, kinds = _computed(operator, values, prepare_quickly)
    assert kinds[0] == kinds[-1] == "Cast"
    with np.errstate(all="ignore"):
        expected = _HYPERBOLIC_FUNCTIONS[operator](values.astype(float)).astype(np.float16)
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


def test_a_small_brain_float_is_computed_in_float32(prepare_quickly: Prepare) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(ml_dtypes.bfloat16))
    built = model([node("Sinh", ["x"], ["y"])], [("x", (3,), kind)], [("y", (3,), kind)])
    assert next(each.op_type for each in prepare_quickly(built).model.graph.node) == "Cast"


def test_small_differences_of_short_floats_are_computed_in_float32(prepare_quickly: Prepare) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16))
    built = model([node("Elu", ["x"], ["y"], alpha=0.5)], [("x", (3,), kind)], [("y", (3,), kind)])
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == ["Cast", "Elu", "Cast"]
    results: Any = ReferenceEvaluator(prepared).run(None, {"x": np.array([-1e-3, 2, -9], np.float16)})
    np.testing.assert_allclose(results[0], [-5e-4, 2, -0.5], rtol=1e-3)


@pytest.mark.parametrize("operator", ["Asin", "Elu"])
def test_float32_stays_where_it_is_right(operator: str, prepare_quickly: Prepare) -> None:
    assert _computed(operator, np.array([0.5], np.float32), prepare_quickly)[1] == [operator]


def _signs_computed(operator: str, values: Array, prepare: Prepare) -> tuple[Array, list[str]]:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    built = model([node(operator, ["x"], ["y"])], [("x", values.shape, kind)], [("y", values.shape, kind)])
    prepared = prepare(built).model
    return np.asarray(run(prepared, {"x": values})["y"]), [each.op_type for each in prepared.graph.node]


def test_integers_are_subtracted_from_0(prepare_quickly: Prepare) -> None:
    feeds: dict[str, Array] = {}
    expected = []
    for kind in (np.int8, np.int16, np.int32, np.int64):
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        counts = [most, -most, 0, 1, -1, min(2**24 + 1, most), -min(2**24 + 1, most)]
        feeds[kind.__name__] = np.array([least, *counts], kind)
        expected.append([least, *(-count for count in counts)])
    nodes = [node("Neg", [name], [f"minus_{name}"], name=f"minus_{name}") for name in feeds]
    values = [(name, feed.shape, helper.np_dtype_to_tensor_dtype(feed.dtype)) for name, feed in feeds.items()]
    built = model(nodes, values, [(f"minus_{name}", *kind) for name, *kind in values])
    assert {each.op_type for each in prepare_quickly(built).model.graph.node} == {"Sub"}
    results = sartor.backend.prepare(built).run([*feeds.values()])
    assert [result.tolist() for result in results] == expected
    assert [result.dtype for result in results] == [feed.dtype for feed in feeds.values()]


def test_floats_are_negated_as_they_are(prepare_quickly: Prepare) -> None:
    actual, kinds = _signs_computed("Neg", np.array([0.0, 1, np.inf], np.float32), prepare_quickly)
    assert kinds == ["Neg"]
    assert np.signbit(actual).all()


def test_bytes_are_their_own_size(prepare_quickly: Prepare) -> None:
    actual, kinds = _signs_computed("Abs", np.array([0, 1, 127, 128, 255], np.uint8), prepare_quickly)
    assert actual.tolist() == [0, 1, 127, 128, 255]
    assert "Abs" not in kinds


def test_words_are_their_own_size(prepare_quickly: Prepare) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.uint32))
    built = model([node("Abs", ["x"], ["y"])], [("x", (3,), kind)], [("y", (3,), kind)])
    assert "Abs" not in [each.op_type for each in prepare_quickly(built).model.graph.node]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_what_is_no_number_has_no_sign(kind: type, prepare_quickly: Prepare) -> None:
    actual, _ = _signs_computed("Sign", np.array([np.nan, -2, 0, 3, -np.inf], kind), prepare_quickly)
    np.testing.assert_array_equal(actual, [np.nan, -1, 0, 1, -1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_what_is_shifted_out_is_gone(dtype: type[np.integer], direction: str) -> None:
    limits, width = np.iinfo(dtype), np.iinfo(dtype).bits
    values = np.array([limits.min, limits.max, 1, 5, limits.max - 9] * 7, dtype)
    longest = 127 if limits.min else 255
    distances = np.repeat(np.array([0, 1, width - 1, width, width + 1, longest, longest - 1], dtype), 5)
    node = helper.make_node("BitShift", ["x", "d"], ["y"], direction=direction)
    (found,) = sartor.backend.run_node(node, [values, distances])
    wide = [
        int(value) << int(by) if direction == "LEFT" else int(value) >> int(by)
        for value, by in zip(values, distances, strict=True)
    ]
    np.testing.assert_array_equal(found, np.array([each % 2**width for each in wide], np.uint64).astype(dtype))

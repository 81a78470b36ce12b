"""Angles of many turns keep their sines, and what is no angle gives NaN."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

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

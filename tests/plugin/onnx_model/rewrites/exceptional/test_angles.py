"""Angles of many turns keep their sines, and what is no angle gives NaN."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.plugin.onnx_model.builders import Array, model, node, run
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
def test_whole_turns_are_subtracted(sign: int, prepare_quickly: Prepare) -> None:
    angles = (sign * _ANGLES).astype(np.float32)
    within = _within(angles, prepare_quickly)
    assert (np.abs(within) < 4).all()
    np.testing.assert_allclose(np.sin(within.astype(float)), np.sin(angles.astype(float)), atol=3e-7)
    np.testing.assert_allclose(np.cos(within.astype(float)), np.cos(angles.astype(float)), atol=3e-7)


def test_small_angles_do_not_change(prepare_quickly: Prepare) -> None:
    angles = np.array([0, -0.0, 1e-30, 3.1, -3.1], np.float32)
    np.testing.assert_array_equal(_within(angles, prepare_quickly), angles)


def test_there_is_a_bound_beyond_which_angles_are_0(prepare_quickly: Prepare) -> None:
    within = _within(np.array([1e8, -3e38, np.inf, -np.inf, np.nan], np.float32), prepare_quickly)
    np.testing.assert_array_equal(within, [0, 0, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("operator", list(_FUNCTIONS))
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_the_functions_keep_their_results(operator: str, kind: type, prepare_quickly: Prepare) -> None:
    angles: Array = np.array([0, 0.5, -1, 3, 100, -1000.5, 6e4], kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    built = model([node(operator, ["x"], ["y"])], [("x", angles.shape, element)], [("y", angles.shape, element)])
    expected = _FUNCTIONS[operator](angles.astype(float))
    actual = run(prepare_quickly(built).model, {"x": angles})["y"]
    np.testing.assert_allclose(actual, expected, rtol=2e-3 if kind is np.float16 else 2e-6)

"""Hyperbolic functions are right where arguments are small, and finite where results are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.plugin.onnx_model.builders import Array, model, node
from tests.plugin.onnx_model.conftest import Prepare

_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
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
        np.testing.assert_allclose(actual, _FUNCTIONS[operator](values.astype(float)).astype(kind), rtol=tolerance)


@pytest.mark.parametrize("operator", list(_FUNCTIONS))
def test_short_floats_are_computed_in_float32(operator: str, prepare_quickly: Prepare) -> None:
    values = np.concatenate([_SIZES, -_SIZES]).astype(np.float16)
    actual, kinds = _computed(operator, values, prepare_quickly)
    assert kinds[0] == kinds[-1] == "Cast"
    with np.errstate(all="ignore"):
        expected = _FUNCTIONS[operator](values.astype(float)).astype(np.float16)
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

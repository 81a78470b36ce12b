"""Inverses of matrices: the lowered model computes what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, relative_error, run
from tests.plugin.onnx_model.conftest import Prepare

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

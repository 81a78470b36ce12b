"""Sampling of images whose type is not that of the grid; for these ONNX Runtime has no sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


def _sampling(mode: str, kind: int) -> ModelProto:
    inputs = [("x", (1, 2, 4, 5), kind), ("g", (1, 2, 3, 2), FLOAT)]
    return model([node("GridSample", ["x", "g"], ["y"], mode=mode)], inputs, [("y", None, kind)], opset=20)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_doubles_are_weighted_in_double(mode: str, prepare_quickly: Prepare) -> None:
    built, generator = _sampling(mode, TensorProto.DOUBLE), np.random.default_rng(0)
    # Positions that float32 holds in pixels too; their values differ by less than float32 does.
    grid = generator.integers(-4, 5, (1, 2, 3, 2)).astype(np.float32) / 4
    feeds = {"x": 1 + generator.standard_normal((1, 2, 4, 5)) * 2.0**-30, "g": grid}
    results: Any = ReferenceEvaluator(built).run(None, feeds)
    np.testing.assert_allclose(run(prepare_quickly(built).model, feeds)["y"], results[0], rtol=0, atol=2.0**-48)


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT32])
def test_integers_are_sampled_but_not_weighted(kind: int, prepare_quickly: Prepare) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    feeds = {"x": np.arange(40, dtype=dtype).reshape(1, 2, 4, 5), "g": np.full((1, 2, 3, 2), 0.3, np.float32)}
    nearest = _sampling("nearest", kind)
    found = run(prepare_quickly(nearest).model, feeds)["y"]
    (expected,) = ReferenceEvaluator(nearest).run(None, feeds)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(UnsupportedModelError, match=r"^node 'gridsample' \(GridSample\) interpolates between values"):
        prepare_quickly(_sampling("linear", kind))


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_nearest_pixel_is_that_of_onnx_runtime_beside_the_image_too(
    padding: str, corners: int, prepare_quickly: Prepare
) -> None:
    """Positions half way between two pixels, as regular grids have them."""
    found = {"mode": "nearest", "padding_mode": padding, "align_corners": corners}
    inputs = [("x", (1, 1, 1, 4), FLOAT), ("g", (1, 1, 17, 2), FLOAT)]
    built = model([node("GridSample", ["x", "g"], ["y"], **found)], inputs, ["y"], opset=16)
    grid = np.zeros((1, 1, 17, 2), np.float32)
    grid[..., 0] = np.linspace(-2, 2, 17)
    feeds = {"x": np.arange(1, 5, dtype=np.float32).reshape(1, 1, 1, 4), "g": grid}
    np.testing.assert_array_equal(run(prepare_quickly(built).model, feeds)["y"], run(built, feeds)["y"])

"""Resize of integers, and sampling of images by grids of another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.fractional_corners import fractional_corners
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


def _resize(element: int, scale: float, **attributes: Any) -> ModelProto:
    constants = {"s": np.array([1, 1, scale, scale], np.float32), "roi": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)}
    return model(
        [node("Resize", ["x", "roi", "s"], ["y"], **attributes)],
        [("x", (1, 2, 5, 6), element)],
        [("y", None, element)],
        constants,
        opset=19,
    )


def _row(size: int, scale: float, opset: int = 19, **attributes: Any) -> ModelProto:
    """A Resize of the last dimension; the region is empty."""
    constants = {"s": np.array([1, 1, 1, scale], np.float32), "roi": np.zeros(0, np.float32)}
    return model(
        [node("Resize", ["x", "roi", "s"], ["y"], **attributes)],
        [("x", (1, 1, 1, size), TensorProto.FLOAT)],
        ["y"],
        constants,
        opset=opset,
    )


@pytest.mark.parametrize("scale", [2.0, 0.6])
@pytest.mark.parametrize("element", [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32])
def test_linear_resize_of_integers(element: int, scale: float, prepare_quickly: Prepare) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    limits = np.iinfo(np.uint8 if element == TensorProto.UINT8 else np.int8)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (1, 2, 5, 6), endpoint=True).astype(dtype)
    built = _resize(element, scale, mode="linear")
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


@pytest.mark.parametrize(("size", "scale"), [(5, 0.3), (7, 0.55), (6, 0.8), (9, 1.3), (7, 2.35), (3, 0.4)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_scales_that_give_no_integer(
    transform: str, mode: str, size: int, scale: float, prepare_quickly: Prepare
) -> None:
    built = _row(size, scale, coordinate_transformation_mode=transform, mode=mode)
    x = np.random.default_rng(0).random((1, 1, 1, size), np.float32)
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"], rtol=3e-5)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scale", [0.55, 1.3, 2.0])
def test_whole_pixels_of_old_opsets(rounding: str, scale: float, prepare_quickly: Prepare) -> None:
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
    built = _row(7, scale, opset=11, **attributes)
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


def test_corners_as_onnx_aligns_them(prepare_quickly: Prepare) -> None:
    """The example of ONNX's test "resize_downsample_scales_linear_align_corners"; ONNX Runtime gives 1 and 4."""
    built = _row(4, 0.6, coordinate_transformation_mode="align_corners", mode="linear")
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 1, 4)
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"].ravel(), [1, 4])
    assert fractional_corners(built) == ("resize",)
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"].ravel(), [1, 3.142857], rtol=1e-6)


def test_the_largest_int32_does_not_overflow(prepare_quickly: Prepare) -> None:
    x = np.full((1, 2, 5, 6), 2**31 - 1, np.int32)
    prepared = prepare_quickly(_resize(TensorProto.INT32, 2.0, mode="linear")).model
    assert (run(prepared, {"x": x})["y"] == 2**31 - 128).all()


@pytest.mark.parametrize(
    ("element", "attributes", "message"),
    [
        (TensorProto.UINT8, {"mode": "cubic"}, r"node 'resize' \(Resize\) resizes uint8 in mode 'cubic'"),
        (TensorProto.INT8, {"mode": "linear", "antialias": 1}, "int8 in mode 'linear' with antialias"),
        (TensorProto.INT64, {"mode": "linear"}, "cast to float32 around it"),
    ],
)
def test_integers_whose_rounding_is_not_defined(
    element: int, attributes: dict[str, Any], message: str, prepare_quickly: Prepare
) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(_resize(element, 2.0, **attributes))


@pytest.mark.parametrize("scale", [-1.0, 0.0, np.nan])
def test_scales_that_are_not_positive_are_refused_by_node(scale: float, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"node 'resize' \(Resize\) resizes by the scales .*positive"):
        prepare_quickly(_row(7, scale))


def test_a_huge_scale_is_refused_by_node(prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"node 'resize' \(Resize\)"):
        prepare_quickly(_row(7, 1e30))


def test_what_shrinks_much_is_a_product(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_row(400, 0.01, mode="linear", antialias=1)).model
    assert "MatMul" in (kinds := {each.op_type for each in prepared.graph.node})
    assert "Gather" not in kinds


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 1, 4, 8), (1, 1, 4, 4)])
def test_no_axis_is_cropped_that_keeps_its_size(sizes: tuple[int, ...], mode: str, prepare_quickly: Prepare) -> None:
    """ONNX Runtime does not look at its region, and copies what keeps all of its sizes."""
    constants = {"r": np.array([0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75], np.float32), "n": ints(*sizes)}
    cropped = node("Resize", ["x", "r", "", "n"], ["y"], mode=mode, coordinate_transformation_mode="tf_crop_and_resize")
    built = model([cropped], [("x", (1, 1, 4, 4), FLOAT)], [("y", sizes, FLOAT)], constants)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    expected = run(built, {"x": x})["y"]
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"], expected, rtol=1e-5)


def test_an_image_that_keeps_its_size_is_copied(prepare_quickly: Prepare) -> None:
    built = _row(4, 1.2, mode="linear")
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


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

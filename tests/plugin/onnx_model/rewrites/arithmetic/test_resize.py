"""Resize of integers: the prepared model computes what ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import model, node, run
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


@pytest.mark.parametrize("scale", [2.0, 0.6])
@pytest.mark.parametrize("element", [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32])
def test_linear_resize_of_integers(element: int, scale: float, prepare_quickly: Prepare) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    limits = np.iinfo(np.uint8 if element == TensorProto.UINT8 else np.int8)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (1, 2, 5, 6), endpoint=True).astype(dtype)
    built = _resize(element, scale, mode="linear")
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], run(built, {"x": x})["y"])


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

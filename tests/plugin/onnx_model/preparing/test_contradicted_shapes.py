"""Declared shapes that the nodes contradict do not count, as in ONNX Runtime."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import ModelProto, helper

from tests.plugin.onnx_model.builders import FLOAT, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_X = np.ones((4, 8), np.float32)


def _product(output: tuple[int | str, ...], inner: tuple[int | str, ...] | None = None) -> ModelProto:
    """relu(x w), [4, 16], whose output and product declare these shapes."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    built = model(nodes, [("x", (4, 8), FLOAT)], [("y", output, FLOAT)], {"w": weights(8, 16)})
    if inner is not None:
        built.graph.value_info.append(helper.make_tensor_value_info("t", FLOAT, inner))
    return built


@pytest.mark.parametrize(
    ("output", "inner", "said"),
    [
        ((3, 16), None, "'y' is [4, 16] and not [3, 16]"),
        ((4, 16, 1), None, "'y' is [4, 16] and not [4, 16, 1]"),
        ((4, 16), (4, 15), "'t' is [4, 16] and not [4, 15]"),
        ((4, 16), (16,), "'t' is [4, 16] and not [16]"),
        (("batch", 1), ("batch", 2, 3), "'t' is [4, 16] and not [?, 2, 3]; 'y' is [4, 16] and not [?, 1]"),
    ],
)
def test_inferred_shapes_count_with_a_warning(
    output: tuple[int | str, ...],
    inner: tuple[int | str, ...] | None,
    said: str,
    prepare_quickly: Prepare,
    caplog: pytest.LogCaptureFixture,
) -> None:
    original = _product(output, inner)
    with caplog.at_level(logging.WARNING):
        prepared = prepare_quickly(original)
    assert prepared.outputs[0].shape == (4, 16)
    assert said in caplog.text
    assert np.array_equal(run(prepared.model, {"x": _X})["y"], run(original, {"x": _X})["y"])


@pytest.mark.parametrize("output", [(4, 16), ("batch", 16)])
def test_fitting_shapes_are_not_mentioned(
    output: tuple[int | str, ...], prepare_quickly: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        prepare_quickly(_product(output, output))
    assert not caplog.text


def test_the_right_shape_of_a_resized_image_is_not_taken_for_wrong(
    prepare_quickly: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX's own inference finds 13 rows."""
    resized = node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = {"scales": np.array([1, 1, 0.7, 0.7], np.float32)}
    with caplog.at_level(logging.WARNING):
        prepared = prepare_quickly(
            model([resized], [("x", (1, 3, 20, 30), FLOAT)], [("y", (1, 3, 14, 21), FLOAT)], scales)
        )
    assert prepared.outputs[0].shape == (1, 3, 14, 21)
    assert not caplog.text

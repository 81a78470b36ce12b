"""Values of Sigmoid, moved but not computed with, are replaced by more exact ones where ONNX Runtime has no digits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from sartor.reference.disturbed_model import disturb
from sartor.reference.sigmoid_outputs import refined, sigmoid_outputs
from sartor.runtime.output_error import output_error
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, model, node, run

SHAPE = [1, 4]
SIGMOID = node("Sigmoid", ["x"], ["s"])
MOVED = [
    node("Concat", ["s", "s2"], ["c"], axis=1),
    node("Transpose", ["c"], ["t"]),
    node("Unsqueeze", ["t", "zero"], ["u"]),
    node("Slice", ["u", "zero", "one"], ["y"]),
]


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([node("Sigmoid", ["x"], ["y"])], True),
        ([SIGMOID, node("Sigmoid", ["x"], ["s2"], name="2"), *MOVED], True),
        ([SIGMOID, node("Relu", ["x"], ["s2"]), *MOVED], True),
        ([SIGMOID, node("Mul", ["s", "s"], ["y"])], False),
        ([node("Reshape", ["x", "shape"], ["y"])], False),
    ],
)
def test_which_outputs_hold_values_of_sigmoid(nodes: list[NodeProto], found: bool) -> None:
    constants = {"zero": np.array([0]), "one": np.array([1]), "shape": np.array([4])}
    assert sigmoid_outputs(model(nodes, [("x", SHAPE, FLOAT)], ["y"], constants)) == (found,)


def test_outputs_are_judged_one_by_one() -> None:
    half = [("x", SHAPE, FLOAT16)]
    assert sigmoid_outputs(model([node("Sigmoid", ["x"], ["y"])], half, [("y", SHAPE, FLOAT16)])) == (False,)
    built = model([SIGMOID, node("Neg", ["s"], ["y"])], [("x", SHAPE, FLOAT)], ["y", "s"])
    assert sigmoid_outputs(built) == (False, True)


def test_what_onnx_runtime_is_off_by_is_repaired() -> None:
    x = np.linspace(-30, -2, 20001, dtype=np.float32)[None]
    built = model([node("Sigmoid", ["x"], ["y"])], [("x", x.shape, FLOAT)], ["y"])
    reference, right = run(built, {"x": x})["y"], 1 / (1 + np.exp(-x.astype(np.float64)))
    small = x < -17
    assert output_error(right[small], reference[small]) > 1e-3
    disturb(built, 0)
    better = refined(reference, run(built, {"x": x})["y"])
    assert np.max(np.abs(better / right - 1)) < 1e-4
    np.testing.assert_array_equal(better[x > -5], reference[x > -5])


def test_what_is_further_off_is_not_repaired() -> None:
    reference = np.array([1e-6, 2e-6, 0.5], np.float32)
    np.testing.assert_array_equal(refined(reference, reference + np.float32(1e-6)), reference)
    np.testing.assert_array_equal(refined(reference, reference[:2]), reference)

"""Only values of Sigmoid, moved but not computed with, have a floor."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from sartor.runtime.reference import output_error
from sartor.sigmoid_outputs import SIGMOID_FLOOR, output_floors
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
    ("nodes", "floor"),
    [
        ([node("Sigmoid", ["x"], ["y"])], SIGMOID_FLOOR),
        ([SIGMOID, node("Sigmoid", ["x"], ["s2"], name="2"), *MOVED], SIGMOID_FLOOR),
        ([SIGMOID, node("Relu", ["x"], ["s2"]), *MOVED], 0.0),
        ([SIGMOID, node("Mul", ["s", "s"], ["y"])], 0.0),
        ([node("Reshape", ["x", "shape"], ["y"])], 0.0),
    ],
)
def test_where_the_floor_applies(nodes: list[NodeProto], floor: float) -> None:
    constants = {"zero": np.array([0]), "one": np.array([1]), "shape": np.array([4])}
    assert output_floors(model(nodes, [("x", SHAPE, FLOAT)], ["y"], constants)) == (floor,)


def test_outputs_are_judged_one_by_one() -> None:
    half = [("x", SHAPE, FLOAT16)]
    assert output_floors(model([node("Sigmoid", ["x"], ["y"])], half, [("y", SHAPE, FLOAT16)])) == (0.0,)
    built = model([SIGMOID, node("Neg", ["s"], ["y"])], [("x", SHAPE, FLOAT)], ["y", "s"])
    assert output_floors(built) == (0.0, SIGMOID_FLOOR)


def test_the_floor_is_what_onnx_runtime_is_off_by() -> None:
    x = np.linspace(-30, -14, 20001, dtype=np.float32)[None]
    built = model([node("Sigmoid", ["x"], ["y"])], [("x", x.shape, FLOAT)], ["y"])
    reference, exact = run(built, {"x": x})["y"], 1 / (1 + np.exp(-x.astype(np.float64)))
    small = x < -17
    assert output_error(exact[small], reference[small]) > 1e-3
    assert output_error(exact[small], reference[small], floor=SIGMOID_FLOOR) <= SIGMOID_FLOOR

"""Max and Min keep NaN of either operand, and TopK has it before all numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_X = np.array([np.nan, 1, np.nan, -3], np.float32)
_Y = np.array([2, np.nan, np.nan, 0.5], np.float32)


@pytest.mark.parametrize("constant", [None, _Y, np.array([2, 1, 0, 4], np.float32)])
def test_nan_of_both_operands(constant: Array | None) -> None:
    nodes = [
        node(operator, operands, [f"{operator}{index}"], name=f"{operator}{index}")
        for operator in ("Max", "Min")
        for index, operands in enumerate((["x", "y"], ["y", "x"]))
    ]
    inputs = [("x", (4,), FLOAT), ("y", (4,), FLOAT)][: 2 if constant is None else 1]
    outputs = [(each.output[0], (4,), FLOAT) for each in nodes]
    built = model(nodes, inputs, outputs, {} if constant is None else {"y": constant})
    feeds = {"x": _X, "y": _Y} if constant is None else {"x": _X}
    actual = sartor.backend.prepare(built).run([*feeds.values()])
    for value, expected in zip(actual, run(built, feeds).values(), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_nan_of_the_first_of_several_operands(operator: str) -> None:
    operands = {name: np.roll(np.array([np.nan, 1, -2, 3], np.float32), turn) for turn, name in enumerate("xyz")}
    built = model(
        [node(operator, [*operands], ["w"])], [(name, (4,), FLOAT) for name in operands], [("w", (4,), FLOAT)]
    )
    (found,) = sartor.backend.prepare(built).run([*operands.values()])
    np.testing.assert_array_equal(found, run(built, operands)["w"])


def test_a_constant_number_comes_first(prepare_quickly: Prepare) -> None:
    built = model([node("Max", ["x", "zero"], ["y"])], [("x", (4,), FLOAT)], ["y"], {"zero": np.float32(0)})
    (only,) = prepare_quickly(built).model.graph.node
    assert (only.op_type, [*only.input]) == ("Max", ["zero", "x"])


def test_nan_is_the_largest_of_a_selection() -> None:
    values = np.array([[9, 1, np.nan, 3, 2, 10], [1, -np.inf, np.inf, np.nan, np.nan, 0]], np.float32)
    nodes, results, constants = [], [], {}
    for largest, count in itertools.product((0, 1), (1, 3, 6)):
        y, i, k = (f"{letter}{largest}{count}" for letter in "yik")
        nodes.append(node("TopK", ["x", k], [y, i], name=y, largest=largest))
        results += [(y, (2, count), FLOAT), (i, (2, count), INT64)]
        constants[k] = np.array([count])
    built = model(nodes, [("x", (2, 6), FLOAT)], results, constants)
    found = sartor.backend.prepare(built).run([values])
    for value, expected in zip(found, run(built, {"x": values}).values(), strict=True):
        np.testing.assert_array_equal(value, expected)

"""Rows of tables that are as long as the largest number given, computed from the numbers alone."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, Value, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_WIDTH = 16
_COUNTED = (
    node("ReduceMax", ["at"], ["top"], keepdims=0),
    node("Add", ["top", "one"], ["count"]),
    node("Range", ["zero", "count", "one"], ["places"]),
    node("Cast", ["places"], ["real"], to=FLOAT),
)
_ANGLES = (
    node("Unsqueeze", ["real", "last"], ["column"]),
    node("Mul", ["column", "frequencies"], ["half"], name="angles"),
    node("Concat", ["half", "half"], ["whole"], axis=-1),
)
_CONSTANTS: dict[str, Array | np.int64] = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "last": ints(1),
    "frequencies": (1e2 ** (-np.arange(_WIDTH // 2) / 8)).astype(np.float32),
    "square": weights(_WIDTH, _WIDTH),
}


def _gathering(*nodes: NodeProto, table: str) -> ModelProto:
    taking = node("Gather", [table, "at"], ["y"])
    return model([*_COUNTED, *nodes, taking], [("at", (2, 3), INT64)], [("y", None, FLOAT)], _CONSTANTS)


def _rotary() -> ModelProto:
    nodes = [
        node("Cos", ["half"], ["cos"]),
        node("Sin", ["half"], ["sin"]),
        node("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], domain=MS),
    ]
    inputs: list[Value] = [("x", (2, 4, 3, _WIDTH), FLOAT), ("at", (2, 3), INT64)]
    return model([*_COUNTED, *_ANGLES, *nodes], inputs, [("y", (2, 4, 3, _WIDTH), FLOAT)], _CONSTANTS)


MODELS = {
    "angles": lambda: _gathering(*_ANGLES, node("Cos", ["whole"], ["cos"]), table="cos"),
    "products": lambda: _gathering(*_ANGLES, node("MatMul", ["whole", "square"], ["turned"]), table="turned"),
    "numbers": lambda: _gathering(node("Sub", ["one_and_a_half", "real"], ["less"]), table="less"),
    "rotary": _rotary,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at", [[[0, 5, 2], [1, 1, 0]], [[100, 3, -1], [-101, 7, 99]], [[2, 2, 2], [0, 0, 0]]])
def test_rows_are_those_of_the_table(name: str, at: list[list[int]], prepare_quickly: Prepare) -> None:
    _CONSTANTS["one_and_a_half"] = np.full(1, 1.5, np.float32)
    built = MODELS[name]()
    prepared = prepare_quickly(built).model
    assert "Range" not in {each.op_type for each in prepared.graph.node}
    feeds = {"x": weights(2, 4, 3, _WIDTH), "at": np.abs(at) if name == "rotary" else np.array(at)}
    feeds = {value.name: feeds[value.name] for value in built.graph.input}
    np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], 1e-5, 1e-5)


@pytest.mark.parametrize(
    "mixing",
    [
        node("CumSum", ["real", "zero"], ["table"]),
        node("Softmax", ["real"], ["table"], axis=0),
        node("Div", ["real", "length"], ["table"]),
    ],
    ids=lambda mixing: str(mixing.op_type),
)
def test_rows_that_depend_on_others_are_not_taken_alone(mixing: NodeProto, prepare_quickly: Prepare) -> None:
    built = _gathering(node("ReduceMax", ["real"], ["length"]), mixing, table="table")
    with pytest.raises(UnsupportedModelError, match="Range"):
        prepare_quickly(built)

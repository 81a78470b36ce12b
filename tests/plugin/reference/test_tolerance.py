"""The tolerance follows from every type a model computes with, wherever it is mentioned."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.reference.tolerance import MOST_BY_ITSELF, tolerance
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, model, node

HALF = 1e-2
SHAPE = [4]


def casts() -> ModelProto:
    nodes = [node("Cast", ["x"], ["h"], to=FLOAT16), node("Exp", ["h"], ["e"]), node("Cast", ["e"], ["y"], to=FLOAT)]
    return model(nodes, [("x", SHAPE, FLOAT)], ["y"])


def inputs() -> ModelProto:
    return model([node("Cast", ["x"], ["y"], to=FLOAT)], [("x", SHAPE, FLOAT16)], ["y"])


def weights() -> ModelProto:
    return model([node("Cast", ["w"], ["y"], to=FLOAT)], [], ["y"], {"w": np.ones(4, np.float16)})


def inferred() -> ModelProto:
    built = model([node("Relu", ["x"], ["y"])], [("x", SHAPE, FLOAT)], ["y"])
    built.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.BFLOAT16, SHAPE))
    return built


def inside() -> ModelProto:
    branch = helper.make_graph(casts().graph.node, "branch", [], [helper.make_tensor_value_info("y", FLOAT, SHAPE)])
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return model([choice], [("c", [], TensorProto.BOOL), ("x", SHAPE, FLOAT)], ["y"])


def single() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], [("x", SHAPE, FLOAT)], ["y"])


@pytest.mark.parametrize(
    ("built", "allowed"),
    [
        (casts(), HALF),
        (inputs(), HALF),
        (weights(), HALF),
        (inferred(), HALF),
        (inside(), HALF),
        (single(), 1e-3),
    ],
)
def test_types_decide_the_tolerance(built: ModelProto, allowed: float) -> None:
    assert tolerance(built, 1e-3) == allowed
    assert tolerance(built, 0.5) == 0.5


def test_what_ties_move_is_allowed_and_no_more() -> None:
    assert tolerance(single(), 1e-3, 4e-3) == 6e-3
    assert tolerance(single(), 1e-2, 4e-3) == 1e-2
    assert tolerance(inputs(), 1e-3, 4e-3) == HALF


def test_no_bound_above_one_percent_comes_about_by_itself() -> None:
    for built in (single(), inputs()):
        assert tolerance(built, 1e-3, 0.2) == MOST_BY_ITSELF == 1e-2

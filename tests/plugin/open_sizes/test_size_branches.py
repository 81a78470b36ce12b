"""Which models tell some sizes from others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sartor.open_sizes.size_branches import branch_on_sizes
from tests.open_models import encoder, feed_forward

_SHAPE = helper.make_node("Shape", ["x"], ["shape"])
_SIZE = helper.make_node("Gather", ["shape", "first"], ["size"])
_LESS = helper.make_node("Sub", ["size", "two"], ["less"])


def told(*nodes: NodeProto) -> str | None:
    """The operator that tells sizes apart, in a model with these nodes behind a shape, a size, and two less."""
    held = {"first": 0, "two": 2, "none": -1, "signs": [-1, -1]}
    graph = helper.make_graph(
        [_SHAPE, _SIZE, _LESS, *nodes],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in held.items()],
    )
    node = branch_on_sizes(helper.make_model(graph))
    return None if node is None else node.op_type


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("Equal", ["size", "two"]),
        ("Less", ["two", "size"]),
        ("Equal", ["less", "none"]),
        ("Equal", ["size", "less"]),
        ("Max", ["less", "first"]),
        ("Clip", ["size", "two"]),
        ("Mod", ["size", "two"]),
    ],
)
def test_what_some_sizes_alone_give_is_told(operator: str, operands: Sequence[str]) -> None:
    assert told(helper.make_node(operator, operands, ["y"])) == operator


def test_a_size_as_a_condition_and_bodies_are_told() -> None:
    assert told(helper.make_node("Cast", ["less"], ["y"], to=TensorProto.BOOL)) == "Cast"
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "body", [], [])
    assert told(helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)) == "If"


@pytest.mark.parametrize(
    ("operator", "operands"), [("Equal", ["shape", "signs"]), ("Mul", ["less", "size"]), ("Reshape", ["x", "shape"])]
)
def test_what_is_alike_for_all_sizes_is_not(operator: str, operands: Sequence[str]) -> None:
    assert told(helper.make_node(operator, operands, ["y"])) is None


def test_data_may_be_compared() -> None:
    assert told(helper.make_node("Less", ["x", "x"], ["y"])) is None
    assert branch_on_sizes(feed_forward()) is None
    assert branch_on_sizes(encoder()) is None

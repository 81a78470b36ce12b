"""Selections in an order of their own are sorted, also by the reference."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from sartor.onnx_model.rewrites.structure.sorted_selections import sort_selections
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare


def test_selections_are_sorted_once() -> None:
    nodes = [
        node("Neg", ["x"], ["before"]),
        node("TopK", ["before", "k"], ["some", "at"], sorted=0),
        node("Exp", ["some"], ["behind"]),
        node("Abs", ["x"], ["beside"]),
        node("TopK", ["x", "k"], ["sorted", "too"]),
    ]
    outputs = ["before", "some", "behind", "beside", "sorted"]
    built = model(nodes, [("x", (9,), FLOAT)], outputs, {"k": ints(4)})
    assert sort_selections(built) == ("topk",)
    assert sort_selections(built) == ()


def test_selections_in_a_body_are_sorted() -> None:
    returned = [helper.make_tensor_value_info("z", FLOAT, [4])]
    select = [node("TopK", ["x", "k"], ["z", "at"], sorted=0)]
    cut = [node("Slice", ["x", "zero", "k"], ["z"])]
    branches = {
        "then_branch": helper.make_graph(select, "then", [], returned),
        "else_branch": helper.make_graph(cut, "else", [], returned),
    }
    nodes = [node("If", ["c"], ["y"], **branches), node("Abs", ["x"], ["beside"])]
    inputs = [("x", (9,), FLOAT), ("c", (), TensorProto.BOOL)]
    built = model(nodes, inputs, ["y", "beside"], {"k": ints(4), "zero": ints(0)})
    assert sort_selections(built) == ("topk",)


def test_a_selection_from_constants_is_sorted(prepare_quickly: Prepare) -> None:
    table = weights(100)
    nodes = [node("TopK", ["c", "k"], ["some", "at"], sorted=0), node("Mul", ["x", "some"], ["y"])]
    built = model(nodes, [("x", (5,), FLOAT)], ["y"], {"c": table, "k": ints(5)})
    prepared = prepare_quickly(built).model
    np.testing.assert_array_equal(run(prepared, {"x": np.ones(5, np.float32)})["y"], np.sort(table)[:-6:-1])

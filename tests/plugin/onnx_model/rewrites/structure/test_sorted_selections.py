"""Selections in an order of their own are sorted, and what depends on them is marked."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from sartor.onnx_model.graphs.prepared import own_outputs
from sartor.onnx_model.rewrites.structure.sorted_selections import sort_selections
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare


def test_outputs_behind_a_selection_are_marked() -> None:
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
    assert own_outputs(built) == {"some", "behind"}
    assert sort_selections(built) == ()


def test_selections_in_a_body_mark_what_it_returns() -> None:
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
    assert own_outputs(built) == {"y"}


def test_a_selection_from_constants_is_sorted(prepare_quickly: Prepare) -> None:
    table = weights(100)
    nodes = [node("TopK", ["c", "k"], ["some", "at"], sorted=0), node("Mul", ["x", "some"], ["y"])]
    built = model(nodes, [("x", (5,), FLOAT)], ["y"], {"c": table, "k": ints(5)})
    prepared = prepare_quickly(built).model
    assert own_outputs(prepared) == {"y"}
    np.testing.assert_array_equal(run(prepared, {"x": np.ones(5, np.float32)})["y"], np.sort(table)[:-6:-1])


def test_a_file_does_not_say_what_it_is_compared_with(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (2,), FLOAT)], ["y"])
    built.metadata_props.add(key="sartor.reference:y")
    built.metadata_props.add(key="author", value="somebody")
    prepared = prepare_quickly(built).model
    assert own_outputs(prepared) == set()
    assert [each.key for each in prepared.metadata_props] == ["author"]

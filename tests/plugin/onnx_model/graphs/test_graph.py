"""Names that edits give and change, where a graph has bodies."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.rewrites.exceptional.angles import reduced_angles
from tests.plugin.onnx_model.builders import FLOAT, model, node, run

_PART = "y/angle_size"
"""What a part of ``y = Sin(...)`` is called if the name is free."""


def _conditional(branch: list[NodeProto], around: list[NodeProto], outputs: list[str]) -> ModelProto:
    """A conditional with two branches of the same nodes, which return ``z``, behind other nodes."""
    returned = [helper.make_tensor_value_info("z", FLOAT, [4])]
    taken = node(
        "If",
        ["c"],
        ["chosen"],
        then_branch=helper.make_graph(branch, "then", [], returned),
        else_branch=helper.make_graph(branch, "else", [], returned),
    )
    return model([*around, taken], [("x", (4,), FLOAT), ("c", (), TensorProto.BOOL)], [*outputs, "chosen"])


@pytest.mark.parametrize(
    ("branch", "around", "outputs"),
    [
        ([node("Sin", ["x"], ["y"]), node("Add", ["y", _PART], ["z"])], [node("Neg", ["x"], [_PART])], []),
        ([node("Neg", ["x"], [_PART]), node("Abs", [_PART], ["z"])], [node("Sin", ["x"], ["y"])], ["y"]),
    ],
    ids=["read in a body", "defined in a body"],
)
def test_new_names_are_free_in_all_graphs(branch: list[NodeProto], around: list[NodeProto], outputs: list[str]) -> None:
    built = _conditional(branch, around, outputs)
    feeds = {"x": np.array([0.25, 1, -2, 3], np.float32), "c": np.array(True)}
    right = run(built, feeds)
    assert reduced_angles(built)
    for name, found in run(built, feeds).items():
        np.testing.assert_allclose(found, right[name], atol=1e-6)
    bodies = [attribute.g for attribute in built.graph.node[-1].attribute]
    outside = {name for each in built.graph.node for name in each.output}
    assert not any(name in outside for body in bodies for each in body.node for name in each.output)


def test_a_value_of_a_body_is_not_renamed_like_one_around_it() -> None:
    branch = [node("Neg", ["old"], ["a"]), node("Abs", ["a"], ["z"])]
    built = _conditional(branch, [node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["old"])], ["a"])
    GraphEditor(built.graph).redirect({"a": "x", "old": "new"})
    body = built.graph.node[-1].attribute[0].g
    assert [list(each.input) for each in body.node] == [["new"], ["a"]]

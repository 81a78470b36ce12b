"""Constant indices outside what they index are refused; those inside, and those of graphs that may not run, are not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, model, node
from tests.plugin.onnx_model.conftest import Prepare

_X: list[Value] = [("x", (2, 5, 3), FLOAT)]


def reading(operator: str, indices: object, **attributes: int) -> ModelProto:
    """A node that indexes ``x``; what it writes, if it does, is zero."""
    array = np.array(indices)
    writes = operator.startswith("Scatter")
    shape = array.shape if operator == "ScatterElements" else array.shape[:-1] + (2, 5, 3)[array.shape[-1] :]
    held = {"i": array, **({"u": np.zeros(shape, np.float32)} if writes else {})}
    return model([node(operator, ["x", *held], ["y"], name="read", **attributes)], _X, ["y"], held)


@pytest.mark.parametrize(
    ("built", "index", "extent"),
    [
        (reading("Gather", [0, 5, -5], axis=1), 5, 5),
        (reading("Gather", [-6, 4], axis=-2), -6, 5),
        (reading("GatherElements", [[[1, 3, 0]]], axis=2), 3, 3),
        (reading("GatherND", [[1, 4], [2, 1]]), 2, 2),
        (reading("GatherND", [[[5]], [[0]]], batch_dims=1), 5, 5),
        (reading("ScatterND", [[1, -6]]), -6, 5),
        (reading("ScatterElements", [[[2]]]), 2, 2),
    ],
)
def test_an_index_outside_is_refused(built: ModelProto, index: int, extent: int, prepare_quickly: Prepare) -> None:
    said = f"node 'read' ({built.graph.node[0].op_type}) has the constant index {index} for a dimension of {extent}, "
    with pytest.raises(UnsupportedModelError, match=re.escape(f"{said}where {-extent} to {extent - 1}")):
        prepare_quickly(built)


@pytest.mark.parametrize(
    "built",
    [
        reading("Gather", [0, 4, -5], axis=1),
        reading("GatherND", [[1, 4, -3]]),
        reading("GatherND", [[[-5]], [[4]]], batch_dims=1),
        reading("ScatterElements", [[[-2]]]),
    ],
)
def test_indices_inside_are_not(built: ModelProto, prepare_quickly: Prepare) -> None:
    prepare_quickly(built)


def test_a_branch_that_never_runs_may_have_any(prepare_quickly: Prepare) -> None:
    """Of branches with single numbers both are computed, and one result is taken."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Gather", ["v", place], [name])], name, [], [helper.make_tensor_value_info(name, FLOAT, ())]
        )
        for name, place in (("then", "far"), ("else", "near"))
    }
    nodes = [node("Greater", ["n", "near"], ["c"]), node("If", ["c"], ["y"], **branches)]
    held = {"far": np.array(7), "near": np.array(1)}
    prepare_quickly(model(nodes, [("v", (5,), FLOAT), ("n", (), INT64)], ["y"], held))

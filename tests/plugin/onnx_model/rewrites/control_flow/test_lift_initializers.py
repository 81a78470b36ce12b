"""Constants of bodies become those of the main graph, and models that choose while they run are imported."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from sartor.frontend.onnx_import import import_model
from sartor.onnx_model.graphs.walk import graphs
from sartor.onnx_model.rewrites.control_flow.lift_initializers import lift_initializers
from tests.plugin.onnx_model.builders import node, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.rate_models import RATE, rate_model


@pytest.fixture
def chooser() -> ModelProto:
    """A model that selects its branch by an input; both branches have weights of their own."""
    return rate_model((2, 3))


def test_no_body_keeps_constants(chooser: ModelProto) -> None:
    branch = chooser.graph.node[1].attribute[0].g
    shape = numpy_helper.to_array(branch.initializer[0])
    assert lift_initializers(chooser) == ("shape", "weight", "shape", "weight")
    assert not any(graph.initializer for graph in graphs(chooser) if graph != chooser.graph)
    lifted = {tensor.name: numpy_helper.to_array(tensor) for tensor in chooser.graph.initializer}
    np.testing.assert_array_equal(lifted["choice/shape"], shape)


def test_a_branch_that_returns_a_constant_still_does(chooser: ModelProto) -> None:
    for attribute in chooser.graph.node[1].attribute:
        del attribute.g.node[:]
        attribute.g.output[0].name = "weight"
    feeds = {"x": np.zeros((1, 8), np.float32), "sr": np.array(RATE)}
    (right,) = run(chooser, feeds).values()
    lift_initializers(chooser)
    np.testing.assert_array_equal(run(chooser, feeds)["y"], right)


@pytest.mark.parametrize("rate", [RATE, 8000])
def test_it_computes_the_same(chooser: ModelProto, prepare_quickly: Prepare, rate: int) -> None:
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8), "sr": np.array(rate)}
    prepared = prepare_quickly(chooser).model
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(chooser, feeds)["y"])


def test_bodies_find_constants_of_the_main_graph(chooser: ModelProto, prepare_quickly: Prepare) -> None:
    for attribute in chooser.graph.node[1].attribute:
        attribute.g.node.append(node("Add", ["product", "shift"], ["shifted"], name=f"shift{attribute.name}"))
        attribute.g.output[0].name = "shifted"
    chooser.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "shift"))
    imported = import_model(prepare_quickly(chooser).model)
    assert sum(array.shape == (2, 3) for array in imported.weights.values()) == 1

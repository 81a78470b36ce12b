"""Networks of images in channels last: names and weights of layers stay apart, and what is not known stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.dialect_passes.opening.channels_last import Weights, channels_last
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, weights

SAME = {"pads": [1, 1, 1, 1]}


def turned(network: ModelProto, tmp_path: Path) -> tuple[LayerGraph, Weights]:
    path = tmp_path / "model.onnx"
    onnx.save(network, path)
    imported = imported_model(path, {})
    return channels_last((imported.graph, imported.weights))


def test_a_weight_that_is_a_filter_and_an_image_is_stored_in_two_orders(tmp_path: Path) -> None:
    cube = weights(3, 3, 3, 3)
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv", **SAME),
        node("MaxPool", ["a"], ["m"], name="pool", kernel_shape=[3, 3], **SAME),
        node("Add", ["m", "w"], ["y"], name="add"),
    ]
    graph, stored = turned(model(nodes, [("x", (3, 3, 3, 3), FLOAT)], ["y"], {"w": cube}), tmp_path)
    read = {layer.name: layer.weights for layer in graph.layers if layer.weights}
    ((filters,), (image,)) = read.values()
    np.testing.assert_array_equal(stored[filters], cube.transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(stored[image], cube.transpose(0, 2, 3, 1))


def test_layers_have_names_of_their_own_whatever_nodes_are_called(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="input", **SAME),
        node("Transpose", ["a"], ["t"], name="turn", perm=[0, 1, 3, 2]),
        node("Softmax", ["t"], ["s"], name="softmax", axis=2),
        node("Conv", ["s", "w"], ["y"], name="input.0", **SAME),
    ]
    graph, _ = turned(model(nodes, [("x", (1, 4, 8, 9), FLOAT)], ["y"], {"w": weights(4, 4, 3, 3)}), tmp_path)
    names = [layer.name for layer in graph.layers]
    assert len({*names}) == len(names)
    places = {name: index for index, name in enumerate(names)}
    sources = [(ref.source, index) for index, layer in enumerate(graph.layers) for ref in layer.inputs if ref.source]
    assert all(places[name] < index for name, index in sources)


def test_a_border_that_is_known_only_when_it_runs_stays_in_its_layer(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv", **SAME),
        node("Pad", ["a", "pads", "border"], ["p"], name="pad"),
        node("Relu", ["p"], ["y"], name="relu"),
    ]
    constants = {"w": weights(4, 4, 3, 3), "pads": ints(0, 0, 1, 1, 0, 0, 1, 1)}
    inputs = [("x", (1, 4, 8, 9), FLOAT), ("border", (), FLOAT)]
    graph, _ = turned(model(nodes, inputs, ["y"], constants), tmp_path)
    assert any("tensor.pad" in layer.task.body for layer in graph.layers if layer.name.startswith("pad"))

"""Reshapes stand for transpositions only beside layers that have images with channels last."""

from __future__ import annotations

import onnx

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, weights


def _views(built: onnx.ModelProto) -> dict[str, list[str]]:
    """The reshapes of each layer that is not left out."""
    found = imported_model(built)
    candidates = find_candidates(found, CompileConfig(threads=1).planning, everything=False)
    return {
        layer.name: [each.routine for each in candidates.variants[layer.task.key] if each.traits.is_free]
        for layer in found.graph.layers
    }


def test_a_head_behind_a_convolution_is_a_view() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv"),
        node("Transpose", ["c"], ["t"], name="last", perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "shape"], ["y"], name="flat"),
    ]
    constants = {"w": weights(18, 16, 1, 1), "shape": ints(1, -1, 6)}
    found = _views(model(nodes, [("x", (1, 16, 5, 7), FLOAT)], [("y", (1, 105, 6), FLOAT)], constants))
    assert sorted(map(tuple, found.values())) == [(), ("view_from_last",)]


def test_a_first_transposition_in_front_of_a_convolution_is_a_view() -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], name="first", perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["y"], name="conv"),
    ]
    constants = {"w": weights(18, 16, 1, 1)}
    found = _views(model(nodes, [("x", (1, 5, 7, 16), FLOAT)], [("y", (1, 18, 5, 7), FLOAT)], constants))
    assert sorted(map(tuple, found.values())) == [(), ("view_to_last",)]


def test_a_transposition_of_an_input_for_an_output_is_none() -> None:
    nodes = [node("Transpose", ["x"], ["y"], name="last", perm=[0, 2, 3, 1])]
    found = _views(model(nodes, [("x", (1, 16, 5, 7), FLOAT)], [("y", (1, 5, 7, 16), FLOAT)]))
    assert list(found.values()) == [[]]

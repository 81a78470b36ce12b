"""Sequences of no elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("split", [None, np.int64(2)])
def test_a_dimension_without_elements_has_no_parts(split: np.int64 | None, prepare_quickly: Prepare) -> None:
    given = {} if split is None else {"split": split}
    nodes = [
        node("SplitToSequence", ["x", *given], ["parts"], axis=0),
        node("SequenceLength", ["parts"], ["count"]),
        node("SequenceInsert", ["parts", "w"], ["one"]),
        node("ConcatFromSequence", ["one"], ["y"], axis=0),
    ]
    built = model(nodes, [("x", (0, 4), FLOAT), ("w", (2, 4), FLOAT)], [("count", (), INT64), "y"], given)
    prepared = prepare_quickly(built, {"x": (0, 4)}).model
    feeds = {"x": weights(0, 4), "w": weights(2, 4)}
    right = run(built, feeds)
    assert right["count"] == 0
    taken = {each.name: feeds[each.name] for each in prepared.graph.input}
    for name, found in run(prepared, taken).items():
        np.testing.assert_array_equal(found, right[name])

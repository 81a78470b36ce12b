"""A maximum by its ArgMax, over which IREE's compiler does not end if it is gathered as one element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


def _best(shape: tuple[int, ...], axis: int) -> ModelProto:
    """The index of the largest element along an axis, -1 where that element is not positive."""
    nodes = [
        node("ArgMax", ["x"], ["best"], axis=axis, keepdims=1),
        node("GatherElements", ["x", "best"], ["top"], name="gather", axis=axis),
        node("Greater", ["top", "zero"], ["found"]),
        node("Where", ["found", "best", "none"], ["y"]),
    ]
    result = tuple(1 if each == axis % len(shape) else size for each, size in enumerate(shape))
    constants: dict[str, Any] = {"zero": np.zeros((), np.float32), "none": np.array(-1)}
    return model(nodes, [("x", shape, FLOAT)], [("y", result, INT64)], constants)


@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((5,), -1), ((1, 1, 1), 2), ((1, 7, 1), 1)])
def test_the_compiler_ends(shape: tuple[int, ...], axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sartor.backend, "_TIMEOUT", 100.0)
    built = _best(shape, axis)
    for sign in (1, -1):
        x = sign * (1 + np.random.default_rng(0).random(shape)).astype(np.float32)
        np.testing.assert_array_equal(sartor.backend.run_model(built, [x])[0], run(built, {"x": x})["y"])


def test_one_index_of_several_rows_reads_the_first(prepare_quickly: Prepare) -> None:
    nodes = [node("GatherElements", ["x", "i"], ["y"], name="gather", axis=-1)]
    built = model(nodes, [("x", (3, 4, 5), FLOAT), ("i", (1, 1, 1), INT64)], [("y", (1, 1, 1), FLOAT)])
    prepared = prepare_quickly(built).model
    assert "GatherElements" not in {each.op_type for each in prepared.graph.node}
    feeds = {"x": np.arange(60, dtype=np.float32).reshape(3, 4, 5), "i": np.array([[[-2]]])}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])

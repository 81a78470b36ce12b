"""Bounds of Clip that are NaN bound nothing, as in ONNX Runtime; others are left as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import ModelProto

from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, model, node, run

_X = np.array([-3.0, -0.5, 0.0, 2.0, math.nan], np.float32)


def _clip(bounds: dict[str, float | None], *, are_inputs: bool) -> ModelProto:
    names = [name for name in bounds if bounds[name] is not None]
    read = ["x", *(name if name in names else "" for name in ("low", "high"))]
    inputs = [("x", (5,), FLOAT), *((name, (), FLOAT) for name in names if are_inputs)]
    constants = {} if are_inputs else {name: np.array(bounds[name], np.float32) for name in names}
    return model([node("Clip", read, ["y"], name="clip")], inputs, ["y"], constants)


@pytest.mark.parametrize("are_inputs", [False, True])
@pytest.mark.parametrize(
    ("low", "high"), [(math.nan, 1.0), (-1.0, math.nan), (math.nan, math.nan), (-1.0, 1.0), (None, math.nan)]
)
def test_bounds_that_are_nan_bound_nothing(low: float | None, high: float | None, *, are_inputs: bool) -> None:
    bounds = {"low": low, "high": high}
    original = _clip(bounds, are_inputs=are_inputs)
    given = {name: np.array(bound, np.float32) for name, bound in bounds.items() if bound is not None}
    feeds = {"x": _X, **(given if are_inputs else {})}
    prepared = prepare(original).model
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(original, feeds)["y"])
    for each in prepared.graph.node:
        kept = [tensor for tensor in prepared.graph.initializer if tensor.name in each.input]
        assert each.op_type != "Clip" or not any(np.isnan(np.frombuffer(t.raw_data, np.float32)).any() for t in kept)


def test_bounds_that_are_numbers_are_left_as_they_are() -> None:
    prepared = prepare(_clip({"low": -1.0, "high": 1.0}, are_inputs=False))
    assert [each.op_type for each in prepared.model.graph.node] == ["Clip"]
    assert not any(change.rewrite == "numeric_bounds" for change in prepared.changes)

"""Assignments to the elements that a mask selects, as PyTorch exports them: the result has a fixed shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, Array, Value, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_SHAPE = (3, 5)
_X: list[Value] = [("x", _SHAPE, FLOAT)]
_LIMIT = {"limit": np.float32(0.3), "flat": ints(-1)}


def _coordinates() -> list[NodeProto]:
    """The coordinates of the elements above a limit, [n, 2], and their number, [1]."""
    return [
        node("Greater", ["x", "limit"], ["mask"]),
        node("NonZero", ["mask"], ["columns"]),
        node("Transpose", ["columns"], ["rows"], perm=[1, 0]),
        node("Reshape", ["mask", "flat"], ["line"], name="line"),
        node("Cast", ["line"], ["ones"], to=TensorProto.INT64),
        node("ReduceSum", ["ones"], ["number"]),
    ]


def _number() -> ModelProto:
    """``x[x > limit] = 7``."""
    nodes = [
        *_coordinates(),
        node("Expand", ["seven", "number"], ["copies"]),
        node("ScatterND", ["x", "rows", "copies"], ["y"]),
    ]
    return model(nodes, _X, ["y"], {**_LIMIT, "seven": np.float32(7)})


def _selected() -> ModelProto:
    """``x[x > limit] = z[x > limit] * z[x > limit]``."""
    nodes = [
        *_coordinates(),
        node("GatherND", ["z", "rows"], ["taken"]),
        node("Mul", ["taken", "taken"], ["squares"]),
        node("Expand", ["squares", "number"], ["copies"]),
        node("ScatterND", ["x", "rows", "copies"], ["y"]),
    ]
    return model(nodes, [*_X, ("z", _SHAPE, FLOAT)], ["y"], _LIMIT)


def _source() -> ModelProto:
    """The first numbers of another tensor, in order, as ``masked_scatter``."""
    nodes = [
        *_coordinates(),
        node("Reshape", ["z", "flat"], ["source"], name="source"),
        node("Slice", ["source", "zero", "number"], ["first"]),
        node("ScatterND", ["x", "rows", "first"], ["y"]),
    ]
    return model(nodes, [*_X, ("z", _SHAPE, FLOAT)], ["y"], {**_LIMIT, "zero": ints(0)})


def _rows() -> ModelProto:
    """Whole rows of a matrix, whose mask has one dimension less."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        node("Greater", ["most", "limit"], ["mask"]),
        node("NonZero", ["mask"], ["columns"]),
        node("Transpose", ["columns"], ["rows"], perm=[1, 0]),
        node("GatherND", ["z", "rows"], ["taken"]),
        node("ScatterND", ["x", "rows", "taken"], ["y"]),
    ]
    return model(nodes, [*_X, ("z", _SHAPE, FLOAT)], ["y"], _LIMIT)


@pytest.mark.parametrize("build", [_number, _selected, _source, _rows])
@pytest.mark.parametrize("size", [0.0, 1.0, -10.0, 10.0])
def test_elements_that_a_mask_selects_are_assigned(
    size: float, build: Callable[[], ModelProto], prepare_quickly: Prepare
) -> None:
    original = build()
    prepared = prepare_quickly(original).model
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        value.name: (np.abs(random.standard_normal(_SHAPE)) * size).astype(np.float32) for value in original.graph.input
    }
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(original, feeds)["y"])


def test_one_number_is_a_selection(prepare_quickly: Prepare) -> None:
    assert [item.op_type for item in prepare_quickly(_number()).model.graph.node] == ["Greater", "Where"]


def test_numbers_added_to_what_is_there_are_not_a_selection(prepare_quickly: Prepare) -> None:
    original = _number()
    scatter = original.graph.node[-1]
    scatter.CopyFrom(node("ScatterND", scatter.input, scatter.output, reduction="add"))
    original.opset_import[0].version = 18
    feeds: dict[str, Array] = {"x": np.linspace(-1, 1, 15, dtype=np.float32).reshape(_SHAPE)}
    np.testing.assert_array_equal(run(prepare_quickly(original).model, feeds)["y"], run(original, feeds)["y"])


def test_a_fixed_number_of_values_at_places_that_depend_on_data_is_refused(prepare_quickly: Prepare) -> None:
    nodes = [*_coordinates(), node("ScatterND", ["x", "places", "first"], ["y"])]
    nodes.insert(-1, node("Slice", ["source", "zero", "number"], ["first"]))
    constants = {**_LIMIT, "zero": ints(0), "source": np.ones(15, np.float32), "places": np.zeros((15, 2), np.int64)}
    with pytest.raises(UnsupportedModelError, match=r"\(ScatterND\).* fixed number of places"):
        prepare_quickly(model(nodes, _X, ["y"], constants))

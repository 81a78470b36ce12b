"""Bounds of sizes that nobody gives, and constant indices that exceed them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError, open_bounds
from sartor.onnx_model.preparing.shapes import bind_shapes
from sartor.settings.size_range import SizeRange
from tests.open_models import POSITIONS, Dims, encoder, feed_forward, named
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, model, node
from tests.plugin.onnx_model.conftest import Prepare
from tests.tiny_models import Builder


def test_a_table_of_positions_bounds_lengths_and_usual_bounds_the_rest() -> None:
    bounds = open_bounds(encoder())
    assert bounds is not None
    assert bounds.shapes == dict.fromkeys(("input_ids", "attention_mask"), (SizeRange(1, 8), SizeRange(1, POSITIONS)))
    assert bounds.sources[0] == "batch=1..8, the usual bound"
    assert bounds.sources[1].startswith(f"sequence=1..{POSITIONS}, as long as the table '")


def _rows_by_number() -> ModelProto:
    """Rows of a table by ``Range``, and those that ids name, of a larger vocabulary."""
    build = Builder()
    length = build.op("Gather", "length", build.op("Shape", "shape", "ids"), build.constant(np.array(1)))
    start, step = build.constant(np.array(0)), build.constant(np.array(1))
    places = build.op("Gather", "places", build.weight(20, 4), build.op("Range", "numbers", start, length, step))
    build.op("Add", "y", build.op("Gather", "words", build.weight(7, 4), "ids"), places)
    model = build.model([("ids", [1, 1])], [("y", [1, 1, 4])], TensorProto.INT64, TensorProto.FLOAT)
    return named(model, {"ids": ["batch", "sequence"], "y": ["batch", "sequence", 4]})


def test_rows_that_are_numbered_bound_lengths_and_a_vocabulary_does_not() -> None:
    bounds = open_bounds(_rows_by_number())
    assert bounds is not None
    assert bounds.shapes == {"ids": (SizeRange(1, 8), SizeRange(1, 20))}


def test_types_of_tokens_that_follow_from_sizes_number_no_rows() -> None:
    """As exporters write them where a model is called without: zeros, as many as there are ids."""
    build = Builder()
    zeros = build.op("Slice", "zeros", *(build.constant(np.array(each)) for each in ([[0] * 30], [0], [30], [1])))
    types = build.op(
        "Expand", "types", build.op("Slice", "few", zeros, *_first_one(build)), build.op("Shape", "s", "ids")
    )
    build.op(
        "Add",
        "y",
        build.op("Gather", "words", build.weight(7, 4), "ids"),
        build.op("Gather", "t", build.weight(2, 4), types),
    )
    model = build.model([("ids", [1, 1])], [("y", [1, 1, 4])], TensorProto.INT64, TensorProto.FLOAT)
    bounds = open_bounds(named(model, {"ids": ["batch", "sequence"], "y": ["batch", "sequence", 4]}))
    assert bounds is not None
    assert bounds.shapes["ids"][1] != SizeRange(1, 2)


def _first_one(build: Builder) -> list[str]:
    return [build.constant(np.array(each)) for each in ([0], [1], [1])]


def test_sides_of_images_have_multiples_and_channels_are_those_of_the_filters() -> None:
    build = Builder()
    build.op("Conv", "y", "x", build.weight(8, 5, 3, 3))
    model = named(build.model([("x", [1, 5, 8, 8])], [("y", [1, 8, 6, 6])]), {"x": ["n", "c", "h", "w"]})
    bounds = open_bounds(model)
    assert bounds is not None
    assert bounds.shapes == {"x": (SizeRange(1, 8), 5, SizeRange(32, 640, 32), SizeRange(32, 640, 32))}


@pytest.mark.parametrize("padding", ["NOTSET", "VALID"])
@pytest.mark.parametrize(("poolings", "least"), [(5, 32), (6, 64), (8, 256), (12, 32)])
def test_sides_begin_where_each_window_has_something_to_read(poolings: int, least: int, padding: str) -> None:
    """Half of one pixel is none; for the last model no side is enough, and another check tells."""
    build, x = Builder(), "x"
    for number in range(poolings):
        x = build.op("MaxPool", f"half{number}", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad=padding)
    model = named(build.model([("x", [1, 3, 8, 8])], [(x, [1, 3, 1, 1])]), {"x": ["n", 3, "h", "w"], x: [*"NCHW"]})
    bounds = open_bounds(model)
    assert bounds is not None
    assert bounds.shapes["x"][2:] == (SizeRange(least, 640, 32),) * 2
    reason = (
        f"h={least}..640:32, the usual bounds but for sides of 32, which are too small for node 'half{poolings - 1}'"
    )
    assert bounds.sources[1].startswith(reason) == (least > 32)


def test_a_sum_of_lengths_follows_from_their_bounds() -> None:
    build = Builder()
    build.op("Add", "y", build.op("Concat", "all", "past", "new", axis=0), "mask")
    sized = build.model([("past", [1, 2, 3, 4]), ("new", [1, 2, 3, 4]), ("mask", [1, 2, 3, 4])], [("y", [1, 2, 3, 4])])
    dims: Dims = {"past": [1, 2, "past", 4], "new": [1, 2, "new", 4], "mask": [1, 2, "past + new", 4]}
    bounds = open_bounds(named(sized, dims))
    assert bounds is not None
    assert bounds.shapes == dict.fromkeys(("past", "new"), (1, 2, SizeRange(1, 512), 4))


def test_sums_of_sizes_that_no_input_has_have_no_bounds() -> None:
    model = named(feed_forward(), {"x": ["past + new", 24]})
    assert open_bounds(model) is None


def test_a_refusal_of_free_sizes_has_their_bounds() -> None:
    with pytest.raises(UnboundSizesError, match=r"dimension 0 \('rows'\) of input 'x' is not fixed") as refused:
        bind_shapes(feed_forward(), {})
    assert refused.value.bounds == open_bounds(feed_forward())


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

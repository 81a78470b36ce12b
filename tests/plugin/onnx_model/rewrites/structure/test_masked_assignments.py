"""Assignments by masks, rows that are as long as the largest number given, and selections that are sorted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.structure.sorted_selections import sort_selections
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, Value, ints, model, node, run, weights
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


_WIDTH = 16
_COUNTED = (
    node("ReduceMax", ["at"], ["top"], keepdims=0),
    node("Add", ["top", "one"], ["count"]),
    node("Range", ["zero", "count", "one"], ["places"]),
    node("Cast", ["places"], ["real"], to=FLOAT),
)
_ANGLES = (
    node("Unsqueeze", ["real", "last"], ["column"]),
    node("Mul", ["column", "frequencies"], ["half"], name="angles"),
    node("Concat", ["half", "half"], ["whole"], axis=-1),
)
_CONSTANTS: dict[str, Array | np.int64] = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "last": ints(1),
    "frequencies": (1e2 ** (-np.arange(_WIDTH // 2) / 8)).astype(np.float32),
    "square": weights(_WIDTH, _WIDTH),
}


def _gathering(*nodes: NodeProto, table: str) -> ModelProto:
    taking = node("Gather", [table, "at"], ["y"])
    return model([*_COUNTED, *nodes, taking], [("at", (2, 3), INT64)], [("y", None, FLOAT)], _CONSTANTS)


def _rotary() -> ModelProto:
    nodes = [
        node("Cos", ["half"], ["cos"]),
        node("Sin", ["half"], ["sin"]),
        node("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], domain=MS),
    ]
    inputs: list[Value] = [("x", (2, 4, 3, _WIDTH), FLOAT), ("at", (2, 3), INT64)]
    return model([*_COUNTED, *_ANGLES, *nodes], inputs, [("y", (2, 4, 3, _WIDTH), FLOAT)], _CONSTANTS)


MODELS = {
    "angles": lambda: _gathering(*_ANGLES, node("Cos", ["whole"], ["cos"]), table="cos"),
    "products": lambda: _gathering(*_ANGLES, node("MatMul", ["whole", "square"], ["turned"]), table="turned"),
    "numbers": lambda: _gathering(node("Sub", ["one_and_a_half", "real"], ["less"]), table="less"),
    "rotary": _rotary,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at", [[[0, 5, 2], [1, 1, 0]], [[100, 3, -1], [-101, 7, 99]], [[2, 2, 2], [0, 0, 0]]])
def test_rows_are_those_of_the_table(name: str, at: list[list[int]], prepare_quickly: Prepare) -> None:
    _CONSTANTS["one_and_a_half"] = np.full(1, 1.5, np.float32)
    built = MODELS[name]()
    prepared = prepare_quickly(built).model
    assert "Range" not in {each.op_type for each in prepared.graph.node}
    feeds = {"x": weights(2, 4, 3, _WIDTH), "at": np.abs(at) if name == "rotary" else np.array(at)}
    feeds = {value.name: feeds[value.name] for value in built.graph.input}
    np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], 1e-5, 1e-5)


@pytest.mark.parametrize(
    "mixing",
    [
        node("CumSum", ["real", "zero"], ["table"]),
        node("Softmax", ["real"], ["table"], axis=0),
        node("Div", ["real", "length"], ["table"]),
    ],
    ids=lambda mixing: str(mixing.op_type),
)
def test_rows_that_depend_on_others_are_not_taken_alone(mixing: NodeProto, prepare_quickly: Prepare) -> None:
    built = _gathering(node("ReduceMax", ["real"], ["length"]), mixing, table="table")
    with pytest.raises(UnsupportedModelError, match="Range"):
        prepare_quickly(built)


def test_selections_are_sorted_once() -> None:
    nodes = [
        node("Neg", ["x"], ["before"]),
        node("TopK", ["before", "k"], ["some", "at"], sorted=0),
        node("Exp", ["some"], ["behind"]),
        node("Abs", ["x"], ["beside"]),
        node("TopK", ["x", "k"], ["sorted", "too"]),
    ]
    outputs = ["before", "some", "behind", "beside", "sorted"]
    built = model(nodes, [("x", (9,), FLOAT)], outputs, {"k": ints(4)})
    assert sort_selections(built) == ("topk",)
    assert sort_selections(built) == ()


def test_selections_in_a_body_are_sorted() -> None:
    returned = [helper.make_tensor_value_info("z", FLOAT, [4])]
    select = [node("TopK", ["x", "k"], ["z", "at"], sorted=0)]
    cut = [node("Slice", ["x", "zero", "k"], ["z"])]
    branches = {
        "then_branch": helper.make_graph(select, "then", [], returned),
        "else_branch": helper.make_graph(cut, "else", [], returned),
    }
    nodes = [node("If", ["c"], ["y"], **branches), node("Abs", ["x"], ["beside"])]
    inputs = [("x", (9,), FLOAT), ("c", (), TensorProto.BOOL)]
    built = model(nodes, inputs, ["y", "beside"], {"k": ints(4), "zero": ints(0)})
    assert sort_selections(built) == ("topk",)


def test_a_selection_from_constants_is_sorted(prepare_quickly: Prepare) -> None:
    table = weights(100)
    nodes = [node("TopK", ["c", "k"], ["some", "at"], sorted=0), node("Mul", ["x", "some"], ["y"])]
    built = model(nodes, [("x", (5,), FLOAT)], ["y"], {"c": table, "k": ints(5)})
    prepared = prepare_quickly(built).model
    np.testing.assert_array_equal(run(prepared, {"x": np.ones(5, np.float32)})["y"], np.sort(table)[:-6:-1])

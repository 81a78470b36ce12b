"""Sampled inputs: reproducible, and inside what the model can take."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.disturbed_model import disturbed_feeds
from sartor.reference.random_inputs import OTHERS, USUAL, Indices, sample_inputs
from sartor.runtime.driver.signature import TensorSpec
from sartor.samples.feeds import make_feeds
from tests.plugin.onnx_model.builders import FLOAT, INT64, ints, model, node, run, weights


def test_same_seed_same_values() -> None:
    built = model([node("Add", ["a", "b"], ["y"])], [("a", (50,), FLOAT), ("b", (50,), FLOAT)], ["y"])
    first, again, other = (sample_inputs(built, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["a"], again["a"])
    assert not np.array_equal(first["a"], other["a"])
    assert not np.array_equal(first["a"], first["b"])
    assert first["a"].dtype == np.float32


def test_indices_stay_inside_the_table() -> None:
    nodes = [
        node("Reshape", ["ids", "s"], ["flat"]),
        node("Cast", ["flat"], ["i"], to=INT64),
        node("Gather", ["t", "i"], ["y"]),
    ]
    built = model(nodes, [("ids", (20, 10), TensorProto.INT32)], ["y"], {"s": [-1], "t": weights(7, 2)})
    ids = sample_inputs(built, 0)["ids"]
    assert ids.min() == 0
    assert ids.max() == 6


@pytest.mark.parametrize(
    ("name", "counts"),
    [("pos", True), ("position_ids", True), ("model.positions", True), ("pose", False), ("compositions", False)],
)
def test_places_of_tokens_that_nothing_bounds_count_up(name: str, *, counts: bool) -> None:
    nodes = [node("Cast", [name], ["wide"], to=FLOAT), node("Cos", ["wide"], ["y"])]
    drawn = sample_inputs(model(nodes, [(name, (2, 3), INT64)], ["y"]), 0)[name]
    assert (drawn.tolist() == [[0, 1, 2]] * 2) is counts
    (made,) = make_feeds([TensorSpec(name, "int64", (2, 3))], {}).values()
    assert (made.tolist() == [[0, 1, 2]] * 2) is counts


@pytest.mark.parametrize("operator", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
def test_the_number_of_rows_that_live_is_any(operator: str) -> None:
    """With none or one alone nothing but the first row would ever be read."""
    nodes = [node("Reshape", ["live", "s"], ["column"]), node(operator, ["column", "places"], ["y"])]
    held = {"s": [-1, 1], "places": np.arange(6)[None]}
    built = model(nodes, [("live", (1,), INT64)], [("y", (1, 6), TensorProto.BOOL)], held)
    assert {int(sample_inputs(built, seed)["live"][0]) for seed in range(100)} == {*range(7)}


def test_what_begins_among_places_has_room() -> None:
    nodes = [node("Sub", ["places", "begin"], ["distance"])]
    built = model(nodes, [("begin", (1,), INT64)], [("distance", (8,), INT64)], {"places": np.arange(8)})
    assert {int(sample_inputs(built, seed)["begin"][0]) for seed in range(100)} == {*range(4)}


def test_a_mask_that_is_subtracted_from_ones_hides_some_and_not_all() -> None:
    built = model([node("Sub", ["ones", "m"], ["y"])], [("m", (8,), INT64)], ["y"], {"ones": np.ones(8, np.int64)})
    assert {*sample_inputs(built, 0)["m"].tolist()} == {0, 1}


@pytest.mark.parametrize(
    ("name", "kind", "is_whole"),
    [("attention_mask", INT64, True), ("numbers", INT64, False), ("attention_mask", FLOAT, False)],
)
def test_masks_that_say_where_tokens_are_hide_nothing(name: str, kind: int, is_whole: bool) -> None:
    nodes = [node("Cast", [name], ["wide"], to=kind), node("ReduceSum", ["wide", "axis"], ["y"], keepdims=0)]
    built = model(nodes, [(name, (1, 50), TensorProto.INT32)], [("y", (1,), kind)], {"axis": ints(1)})
    prepared = prepare(built, simplifier=lambda _: ()).model
    for style in (USUAL, *OTHERS):
        has_all = bool(sample_inputs(prepared, 0, style)[name].all())
        assert has_all is (is_whole or style.indices is Indices.ONES)


def test_quantised_input_covers_its_range() -> None:
    constants = {"s": np.float32(0.5), "z": np.int8(-128)}
    built = model(
        [node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        [("x", (4000,), FLOAT)],
        [("y", None, TensorProto.INT8)],
        constants,
    )
    x = sample_inputs(built, 0)["x"]
    assert 0 <= x.min() < 1
    assert 126 < x.max() <= 127.5


@pytest.mark.parametrize("dtype", [TensorProto.INT8, TensorProto.INT64, TensorProto.UINT16, TensorProto.UINT64])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integers_are_not_divided_by_zero(operator: str, dtype: int) -> None:
    nodes = [node("Reshape", ["b", "s"], ["flat"]), node(operator, ["a", "flat"], ["y"])]
    inputs = [("a", (4000,), dtype), ("b", (40, 100), dtype)]
    built = model(nodes, inputs, [("y", (4000,), dtype)], {"s": ints(-1)})
    prepared = prepare(built, simplifier=lambda _: ()).model
    stored = helper.tensor_dtype_to_np_dtype(dtype)
    for style in (USUAL, *OTHERS):
        samples = sample_inputs(prepared, 0, style)
        assert samples["b"].min() > 0
        run(built, {name: sample.view(stored) for name, sample in samples.items()})
    usual = sample_inputs(prepared, 0)
    assert usual["a"].min() <= 0
    assert usual["b"].max() > 1


def test_bytes_flags_and_plain_integers() -> None:
    inputs = [("b", (300,), TensorProto.UINT8), ("m", (300,), TensorProto.BOOL), ("n", (300,), INT64)]
    built = model([node("Identity", ["b"], ["y"])], inputs, [("y", None, TensorProto.UINT8)])
    samples = sample_inputs(built, 0)
    assert samples["b"].dtype == np.uint8
    assert samples["b"].max() > 200
    assert samples["m"].dtype == np.bool_
    assert 0.5 < samples["m"].mean() < 1
    assert set(samples["n"].tolist()) == {0, 1}


def test_free_dimension() -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", ("n", 3), FLOAT)], ["y"])
    with pytest.raises(UsageError, match="free dimension"):
        sample_inputs(built, 0)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64, TensorProto.UINT8])
def test_values_without_dimensions_are_arrays(dtype: int) -> None:
    made = model([node("Identity", ["x"], ["y"])], [("x", (), dtype)], [("y", (), dtype)])
    for style in (USUAL, *OTHERS):
        (value,) = sample_inputs(made, 0, style).values()
        assert isinstance(value, np.ndarray)
        (moved,) = disturbed_feeds({"x": value}, 0, quantised=False).values()
        assert isinstance(moved, np.ndarray)
        assert (moved.shape, moved.dtype) == (value.shape, value.dtype) == ((), value.dtype)


def test_constants_whose_values_were_left_out_are_not_asked_for() -> None:
    compared = np.arange(2000, dtype=np.int64)
    built = model([node("Equal", ["x", "c"], ["y"])], [("x", (2000,), INT64)], ["y"], {"c": compared})
    assert sample_inputs(built, 0)["x"].max() > 1
    assert set(np.unique(sample_inputs(without_weights(built), 0)["x"])) <= {0, 1}


def test_an_input_for_which_memory_is_missing_is_named() -> None:
    built = model([node("Relu", ["huge"], ["y"])], [("huge", (2**16, 2**14, 2**10), FLOAT)], ["y"])
    with pytest.raises(UsageError, match=r"input 'huge' has \d+ elements, .* smaller input"):
        sample_inputs(built, 0)


@pytest.mark.parametrize("most", [np.inf, 1e30])
def test_numbers_that_no_integer_equals_are_not_asked_for(most: float) -> None:
    nodes = [node("Cast", ["i"], ["f"], to=FLOAT), node("Equal", ["f", "known"], ["y"])]
    constants = {"known": np.array([most, np.nan, 2], np.float32)}
    built = model(nodes, [("i", (3,), INT64)], [("y", (3,), TensorProto.BOOL)], constants)
    assert (sample_inputs(built, 0)["i"] >= 0).all()


def test_whole_numbers_in_a_float_are_not_disturbed() -> None:
    """They may be indices, of which a number that is a little less is another one."""
    feeds = {"indices": np.array([3, 0, 99], np.float32), "values": np.array([3, 0.5], np.float32)}
    moved = disturbed_feeds(feeds, 0, quantised=False)
    np.testing.assert_array_equal(moved["indices"], feeds["indices"])
    assert not np.array_equal(moved["values"], feeds["values"])

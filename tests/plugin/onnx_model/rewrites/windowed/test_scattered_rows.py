"""Rows that are written into a tensor, as rows of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.rewrites.operator_sets.written_rows import OPERATOR, with_written_rows
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

INT64 = TensorProto.INT64


def built(writing: NodeProto, cache: tuple[int, ...], rows: tuple[int, ...], table: tuple[int, ...]) -> ModelProto:
    given = [("cache", cache, FLOAT), ("rows", rows, FLOAT), ("places", table, INT64)]
    made = model([writing], given, [("y", cache, FLOAT)], opset=24)
    made.ir_version = 11
    return made


def written(prepared: ModelProto) -> list[NodeProto]:
    passed = with_written_rows(prepared)
    return [each for each in passed.graph.node if each.op_type == OPERATOR]


@pytest.mark.parametrize(
    ("cache", "depth", "lead"),
    [
        ((5, 3), 1, (2,)),
        ((5, 3, 2), 1, (2, 2)),
        ((2, 3, 6, 4), 3, (2, 3, 1)),
        ((2, 3, 6, 4), 2, (3,)),
    ],
)
def test_numbers_of_an_index_become_one(
    cache: tuple[int, ...], depth: int, lead: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    writing = node("ScatterND", ["cache", "places", "rows"], ["y"])
    made = built(writing, cache, (*lead, *cache[depth:]), (*lead, depth))
    random, sizes = np.random.default_rng(0), np.array(cache[:depth])
    # No place twice, half of them counted from the end.
    numbers = random.permutation(int(np.prod(sizes)))[: int(np.prod(lead))]
    places = np.stack(np.unravel_index(numbers, tuple(sizes)), -1).reshape(*lead, depth)
    places = np.where(random.random(places.shape) < 0.5, places, places - sizes)
    feeds = {"cache": weights(*cache), "rows": weights(*lead, *cache[depth:], seed=1), "places": places}
    prepared = prepare_quickly(made).model
    assert len(written(prepared)) == 1
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(made, feeds)["y"])


@pytest.mark.parametrize(
    ("mode", "axis", "places"),
    [("linear", -2, [0, 3]), ("linear", 1, [2, 0]), ("circular", -2, [5, 4]), ("circular", 1, [1, 2])],
)
def test_caches_are_written_from_a_place_on(mode: str, axis: int, places: list[int], prepare_quickly: Prepare) -> None:
    cache, count = (2, 4, 6, 3), 2
    rows = tuple(count if at == axis % 4 else size for at, size in enumerate(cache))
    made = built(node("TensorScatter", ["cache", "rows", "places"], ["y"], axis=axis, mode=mode), cache, rows, (2,))
    feeds = {"cache": weights(*cache), "rows": weights(*rows, seed=1), "places": np.array(places)}
    prepared = prepare_quickly(made).model
    assert len(written(prepared)) == 1
    expected = feeds["cache"].copy()
    for sequence, begin in enumerate(places):
        at = np.arange(begin, begin + count) % cache[axis]
        moved = np.moveaxis(expected[sequence], axis if axis < 0 else axis - 1, 0)
        moved[at] = np.moveaxis(feeds["rows"][sequence], axis if axis < 0 else axis - 1, 0)
    np.testing.assert_array_equal(run(prepared, feeds)["y"], expected)
    # Of other numbers of positions the same nodes have to be made.
    assert not written(prepare_quickly(made, is_open=True).model)


def test_places_are_drawn_from_all_where_rows_fit(prepare_quickly: Prepare) -> None:
    for mode, most in (("linear", 4), ("circular", 5)):
        writing = node("TensorScatter", ["cache", "rows", "places"], ["y"], axis=1, mode=mode)
        prepared = prepare_quickly(built(writing, (1, 6, 3), (1, 2, 3), (1,))).model
        drawn = {int(sample_inputs(prepared, seed)["places"].item()) for seed in range(64)}
        assert drawn == set(range(most + 1))


def test_what_is_no_write_of_rows_stays(prepare_quickly: Prepare) -> None:
    added = node("ScatterND", ["cache", "places", "rows"], ["y"], reduction="add")
    assert not written(prepare_quickly(built(added, (5, 3), (2, 3), (2, 1))).model)
    elements = node("ScatterND", ["cache", "places", "rows"], ["y"])
    assert not written(prepare_quickly(built(elements, (5, 3), (2,), (2, 2))).model)

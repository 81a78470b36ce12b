"""Signs of large integers, of bytes and of what is no number."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sartor.backend
from tests.plugin.onnx_model.builders import Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


def _computed(operator: str, values: Array, prepare: Prepare) -> tuple[Array, list[str]]:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    built = model([node(operator, ["x"], ["y"])], [("x", values.shape, kind)], [("y", values.shape, kind)])
    prepared = prepare(built).model
    return np.asarray(run(prepared, {"x": values})["y"]), [each.op_type for each in prepared.graph.node]


def test_integers_are_subtracted_from_0(prepare_quickly: Prepare) -> None:
    feeds: dict[str, Array] = {}
    expected = []
    for kind in (np.int8, np.int16, np.int32, np.int64):
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        counts = [most, -most, 0, 1, -1, min(2**24 + 1, most), -min(2**24 + 1, most)]
        feeds[kind.__name__] = np.array([least, *counts], kind)
        expected.append([least, *(-count for count in counts)])
    nodes = [node("Neg", [name], [f"minus_{name}"], name=f"minus_{name}") for name in feeds]
    values = [(name, feed.shape, helper.np_dtype_to_tensor_dtype(feed.dtype)) for name, feed in feeds.items()]
    built = model(nodes, values, [(f"minus_{name}", *kind) for name, *kind in values])
    assert {each.op_type for each in prepare_quickly(built).model.graph.node} == {"Sub"}
    results = sartor.backend.prepare(built).run([*feeds.values()])
    assert [result.tolist() for result in results] == expected
    assert [result.dtype for result in results] == [feed.dtype for feed in feeds.values()]


def test_floats_are_negated_as_they_are(prepare_quickly: Prepare) -> None:
    actual, kinds = _computed("Neg", np.array([0.0, 1, np.inf], np.float32), prepare_quickly)
    assert kinds == ["Neg"]
    assert np.signbit(actual).all()


def test_bytes_are_their_own_size(prepare_quickly: Prepare) -> None:
    actual, kinds = _computed("Abs", np.array([0, 1, 127, 128, 255], np.uint8), prepare_quickly)
    assert actual.tolist() == [0, 1, 127, 128, 255]
    assert "Abs" not in kinds


def test_words_are_their_own_size(prepare_quickly: Prepare) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.uint32))
    built = model([node("Abs", ["x"], ["y"])], [("x", (3,), kind)], [("y", (3,), kind)])
    assert "Abs" not in [each.op_type for each in prepare_quickly(built).model.graph.node]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_what_is_no_number_has_no_sign(kind: type, prepare_quickly: Prepare) -> None:
    actual, _ = _computed("Sign", np.array([np.nan, -2, 0, 3, -np.inf], kind), prepare_quickly)
    np.testing.assert_array_equal(actual, [np.nan, -1, 0, 1, -1])

"""Gathers of parts, and of one element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

import sartor
import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import computed_together

_SHAPE = (2, 3, 6, 10)
_CUTS: dict[str, tuple[NodeProto, dict[str, Array]]] = {
    "every_other": (
        node("Slice", ["x", "s", "e", "a", "t"], ["part"], name="cut"),
        {"s": ints(0, 1), "e": ints(6, 10**6), "a": ints(2, -1), "t": ints(2, 2)},
    ),
    "one": (node("Slice", ["x", "s", "e", "a"], ["part"], name="cut"), {"s": ints(1), "e": ints(2), "a": ints(3)}),
    "first_of_two": (node("Split", ["x", "n"], ["part", "rest"], name="cut", axis=3), {"n": ints(1, 9)}),
}
_READERS: dict[str, tuple[list[NodeProto], dict[str, Array]]] = {
    "gather": ([node("Gather", ["part", "i"], ["y"], axis=2)], {"i": ints(2, 0)}),
    "backwards": (
        [node("Slice", ["part", "bs", "be", "ba", "bt"], ["y"], name="back")],
        {"bs": ints(-1), "be": ints(-(10**6)), "ba": ints(2), "bt": ints(-1)},
    ),
    "enlarged": ([node("Resize", ["part", "", "f"], ["y"], mode="nearest")], {"f": np.array([1, 1, 2, 2], np.float32)}),
    "reshaped": (
        [node("Unsqueeze", ["part", "ua"], ["deep"]), node("Gather", ["deep", "i"], ["y"], axis=3)],
        {"ua": ints(0), "i": ints(2, 0)},
    ),
}


def test_parts_that_are_gathered_from_are_gathered(prepare_quickly: Prepare) -> None:
    x, cases, wanted = weights(*_SHAPE), {}, {}
    for (cut, (first, constants)), (reader, (readers, others)) in itertools.product(_CUTS.items(), _READERS.items()):
        built, name = (
            model([first, *readers], [("x", _SHAPE, FLOAT)], ["y"], {**constants, **others}),
            f"{cut} {reader}",
        )
        prepared, expected = prepare_quickly(built).model, run(built, {"x": x})["y"]
        assert any(item.op_type == "Gather" and "cut" in item.name for item in prepared.graph.node), name
        np.testing.assert_array_equal(run(prepared, {"x": x})["y"], expected, err_msg=name)
        built.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, expected.shape))
        cases[name], wanted[name] = (built, {"x": x}), expected
    for name, (found,) in computed_together(cases).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("operator", ["Relu", "Softmax"])
def test_parts_that_others_read_stay(operator: str, prepare_quickly: Prepare) -> None:
    first, constants = _CUTS["every_other"]
    built = model([first, node(operator, ["part"], ["y"])], [("x", _SHAPE, FLOAT)], ["y"], constants)
    assert [item.op_type for item in prepare_quickly(built).model.graph.node] == ["Slice", operator]


def test_neighbours_stay(prepare_quickly: Prepare) -> None:
    first = node("Slice", ["x", "s", "e", "a"], ["part"], name="cut")
    constants = {"s": ints(1), "e": ints(7), "a": ints(3), "i": ints(2, 0)}
    built = model([first, node("Gather", ["part", "i"], ["y"], axis=2)], [("x", _SHAPE, FLOAT)], ["y"], constants)
    assert [item.op_type for item in prepare_quickly(built).model.graph.node] == ["Slice", "Gather"]


def test_a_long_chain_of_shapes(prepare_quickly: Prepare) -> None:
    first, constants = _CUTS["every_other"]
    chain = [
        node("Reshape", ["part" if not index else f"r{index}", f"to{index % 2}"], [f"r{index + 1}"], name=f"n{index}")
        for index in range(1500)
    ]
    last = node("Gather", ["r1500", "i"], ["y"], axis=0)
    others = {"to0": ints(-1), "to1": ints(2, -1), "i": ints(1, 0)}
    built = model([first, *chain, last], [("x", _SHAPE, FLOAT)], ["y"], {**constants, **others})
    assert "Slice" not in [item.op_type for item in prepare_quickly(built).model.graph.node if item.name == "cut"]


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

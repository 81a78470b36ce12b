"""Halves that change places, as rotary embeddings of exporters have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

SHAPE = (2, 3, 1, 8)
HALF = 4
SLICES = ([HALF], [2 * HALF]), ([0], [HALF])
END = np.iinfo(np.int64).max


def _turned(slices: Sequence[tuple[list[int], list[int]]] = SLICES, *, axis: int = -1, joined: int = -1) -> ModelProto:
    """``x * cosines + concat(-x[second], x[first]) * sines``, both parts by slices along an axis."""
    constants = {"axis": ints(axis)}
    for number, (start, end) in enumerate(slices):
        constants |= {f"start{number}": ints(*start), f"end{number}": ints(*end)}
    cut = [
        node("Slice", ["x", f"start{number}", f"end{number}", "axis"], [f"part{number}"], name=f"cut{number}")
        for number in range(2)
    ]
    return model([*cut, *_joined("part0", "part1", joined)], [("x", SHAPE, FLOAT)], ["y"], constants, opset=18)


def _joined(upper: str, lower: str, axis: int) -> list[NodeProto]:
    return [node("Neg", [upper], ["negated"]), node("Concat", ["negated", lower], ["y"], name="join", axis=axis)]


def _operators(prepared: ModelProto) -> set[str]:
    return {each.op_type for each in prepared.graph.node}


@pytest.mark.parametrize("slices", [SLICES, (([-HALF], [END]), ([0], [-HALF]))], ids=["places", "from the end"])
@pytest.mark.parametrize("axis", [-1, 3])
def test_turned_halves_are_gathered(
    slices: Sequence[tuple[list[int], list[int]]], axis: int, prepare_quickly: Prepare
) -> None:
    built, feeds = _turned(slices, axis=axis, joined=axis), {"x": weights(*SHAPE)}
    prepared = prepare_quickly(built).model
    assert _operators(prepared) == {"Gather", "Mul"}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


def test_parts_of_a_split_are_gathered(prepare_quickly: Prepare) -> None:
    split = node("Split", ["x"], ["lower", "upper"], name="cut", axis=-1, num_outputs=2)
    built = model([split, *_joined("upper", "lower", -1)], [("x", SHAPE, FLOAT)], ["y"], {}, opset=18)
    prepared = prepare_quickly(built).model
    assert "Concat" not in _operators(prepared)
    feeds = {"x": weights(*SHAPE)}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


@pytest.mark.parametrize(
    "built",
    [
        _turned((([HALF - 1], [2 * HALF - 1]), ([0], [HALF]))),
        _turned((([HALF], [2 * HALF]), ([1], [HALF + 1]))),
        _turned((([HALF], [2 * HALF - 1]), ([0], [HALF]))),
        _turned((([2], [4]), ([0], [2]))),
        _turned((([1], [2]), ([0], [1])), axis=0, joined=0),
        _turned(joined=0),
    ],
    ids=["second part too low", "first part too high", "a shorter part", "of a part", "of images", "joined elsewhere"],
)
def test_other_parts_stay(built: ModelProto, prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(built).model
    assert "Concat" in _operators(prepared)
    feeds = {"x": weights(*SHAPE)}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])

"""Channel shuffles whose results are indexed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

SHAPE = (2, 4, 3, 5)


def _shuffle(parts: int, groups: int, *, images: int = SHAPE[0]) -> ModelProto:
    """Images shuffled as ShuffleNetV2's authors do it, and the last group of channels added to the first."""
    rows, pixels = SHAPE[0] * SHAPE[1] * parts // groups, SHAPE[2] * SHAPE[3]
    shown = [groups, images, rows // images, *SHAPE[2:]]
    constants = {"s": ints(rows, groups, pixels), "t": ints(*shown), "i": np.array(0), "j": np.array(-1)}
    given = [f"x{number}" for number in range(parts)]
    nodes = [
        node("Concat", given, ["joined"], axis=1),
        node("Reshape", ["joined", "s"], ["split"], name="split"),
        node("Transpose", ["split"], ["turned"], perm=[1, 0, 2]),
        node("Reshape", ["turned", "t"], ["shuffled"], name="merge"),
        node("Gather", ["shuffled", "i"], ["first"], axis=0, name="first"),
        node("Gather", ["shuffled", "j"], ["last"], axis=0, name="last"),
        node("Relu", ["last"], ["right"]),
        node("Add", ["first", "right"], ["y"]),
    ]
    return model(nodes, [(name, SHAPE, FLOAT) for name in given], ["y"], constants, opset=18)


def _operators(prepared: ModelProto) -> set[str]:
    return {each.op_type for each in prepared.graph.node}


@pytest.mark.parametrize(("parts", "groups"), [(3, 2), (3, 4), (3, 3), (3, 6), (2, 2)])
def test_groups_are_slices(parts: int, groups: int, prepare_quickly: Prepare) -> None:
    built = _shuffle(parts, groups)
    prepared = prepare_quickly(built).model
    assert _operators(prepared) == {"Concat", "Slice", "Relu", "Add"}
    feeds = {f"x{number}": weights(*SHAPE) + number for number in range(parts)}
    joined = np.concatenate(list(feeds.values()), axis=1)
    expected = joined[:, ::groups] + np.maximum(joined[:, groups - 1 :: groups], 0)
    np.testing.assert_array_equal(run(prepared, feeds)["y"], expected)
    np.testing.assert_array_equal(run(built, feeds)["y"], expected)


def test_other_results_are_left_alone(prepare_quickly: Prepare) -> None:
    """Channels of all images in one: no slice of channels."""
    built = _shuffle(3, 2, images=1)
    feeds = {f"x{number}": weights(*SHAPE) + number for number in range(3)}
    prepared = prepare_quickly(built).model
    assert {"Transpose", "Gather"} <= _operators(prepared)
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])

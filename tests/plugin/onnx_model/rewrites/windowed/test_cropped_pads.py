"""Pads that are negative."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("pads", [(-1, 2), (1, 2)])
def test_axes_of_32_bits(pads: tuple[int, int], prepare_quickly: Prepare) -> None:
    constants = {"p": ints(*pads), "v": np.float32(0.5), "a": np.array([-1], np.int32)}
    nodes = [node("Pad", ["x", "p", "v", "a"], ["y"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y"], constants, opset=18)
    x = weights(2, 3)
    low, high = pads
    expected = np.pad(x[:, max(-low, 0) :], ((0, 0), (max(low, 0), high)), constant_values=0.5)
    # ONNX Runtime does not read such axes.
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": x})["y"], expected)


@pytest.mark.parametrize("pads", [(0, -2, 0, -2), (0, -4, 0, 5)])
def test_cropping_more_than_there_is(pads: tuple[int, ...], prepare_quickly: Prepare) -> None:
    built = model([node("Pad", ["x", "p"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], {"p": ints(*pads)}, opset=18)
    with pytest.raises(UnsupportedModelError, match=r"node 'pad' \(Pad\)"):
        prepare_quickly(built)

"""Pads that wrap: IREE's importer hangs on each that is left."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_SHAPE = (2, 3, 7, 9)


@pytest.mark.parametrize("pads", [(0, 1, -2, 2, 0, 0, 1, -3), (0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, -1, 0, 0, 2, 0)])
def test_none_is_left(pads: tuple[int, ...], prepare_quickly: Prepare) -> None:
    pad = node("Pad", ["x", "pads"], ["y"], mode="wrap")
    built = model([pad, node("Relu", ["y"], ["z"])], [("x", _SHAPE, FLOAT)], ["z"], {"pads": ints(*pads)}, opset=19)
    prepared = prepare_quickly(built).model
    assert "Pad" not in {each.op_type for each in prepared.graph.node}
    values = np.random.default_rng(0).standard_normal(_SHAPE).astype(np.float32)
    low, high = np.split(np.array(pads), 2)
    cropped = values[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, _SHAPE, strict=True))]
    expected = np.pad(cropped, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], mode="wrap")
    np.testing.assert_array_equal(run(prepared, {"x": values})["z"], np.maximum(expected, 0))


def test_more_than_there_is_is_refused(prepare_quickly: Prepare) -> None:
    pad = node("Pad", ["x", "pads"], ["y"], mode="wrap")
    built = model([pad], [("x", (2, 3), FLOAT)], ["y"], {"pads": ints(0, 4, 0, 0)}, opset=19)
    with pytest.raises(UnsupportedModelError, match=r"node 'pad' \(Pad\) wraps by more than its input has"):
        prepare_quickly(built)

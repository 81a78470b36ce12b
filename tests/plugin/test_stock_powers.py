"""Powers by IREE's stock lowering have the results of ONNX Runtime, of bases of either sign too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

import sartor.backend
from tests.plugin.onnx_model.builders import Array, model, node, run

_FLOATS = ([np.nan, np.inf, -np.inf, -2, -0.5, 0, -0.0, 3, 1, -1], [0, 1, 3, -3, 0.5, np.inf, np.nan])
_WHOLE = ([-3, -1, 0, 1, 2, 5], [0, 1, 2, 3, 7])


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int32])
def test_computed_exponents(kind: type) -> None:
    bases, exponents = _FLOATS if np.dtype(kind).kind == "f" else _WHOLE
    feeds: list[Array] = [each.astype(kind) for each in np.meshgrid(bases, exponents)]
    shape = feeds[0].shape
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [("x", shape, element), ("y", shape, element)]
    built = model([node("Pow", ["x", "y"], ["z"])], inputs, [("z", shape, element)], opset=18)
    _check(built, feeds, 2e-3 if kind is np.float16 else 1e-5)


def test_constant_exponents() -> None:
    powers = {f"p{index}": np.float32(value) for index, value in enumerate([-1, -2, 0.5, -0.5, 2, 100])}
    x = np.array(_FLOATS[0], np.float32)
    nodes = [node("Pow", ["x", name], [f"{name}_of_x"], name=name) for name in powers]
    built = model(nodes, [("x", x.shape, 1)], [(f"{name}_of_x", x.shape, 1) for name in powers], powers, opset=18)
    _check(built, [x], 1e-5)


def _check(built: ModelProto, feeds: list[Array], tolerance: float) -> None:
    expected = run(built, dict(zip("xy", feeds, strict=False)))
    for actual, wanted in zip(sartor.backend.prepare(built).run(feeds), expected.values(), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=tolerance)
        is_number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(actual)[is_number], np.signbit(wanted)[is_number])

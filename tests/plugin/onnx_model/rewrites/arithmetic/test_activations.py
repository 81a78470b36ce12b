"""Selu has the constants of ONNX, and those that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from sartor import backend
from tests.plugin.onnx_model.builders import FLOAT, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("given", [{}, {"alpha": 2.0}, {"gamma": 0.5}, {"alpha": 1.5, "gamma": 3.0}])
def test_constants_of_selu(given: dict[str, float], prepare_quickly: Prepare) -> None:
    built = model([node("Selu", ["x"], ["y"], **given)], [("x", (4,), FLOAT)], ["y"])
    (selu,) = prepare_quickly(built).model.graph.node
    found = {attribute.name: attribute.f for attribute in selu.attribute}
    expected = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875, **given}
    assert found == pytest.approx(expected, rel=1e-7)


def test_selu_without_constants_has_all_digits() -> None:
    built = model([node("Selu", ["x"], ["y"])], [("x", (64,), FLOAT)], [("y", (64,), FLOAT)])
    x = np.linspace(-8, 8, 64, dtype=np.float32)
    np.testing.assert_allclose(backend.prepare(built).run([x])[0], run(built, {"x": x})["y"], rtol=5e-7)

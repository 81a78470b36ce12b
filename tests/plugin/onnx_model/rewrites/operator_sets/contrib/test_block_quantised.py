"""Products that ONNX Runtime may round are compared with the prepared model."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.onnx_model.graphs.prepared import own_outputs
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize(
    ("level", "is_rounded"), [({}, False), ({"accuracy_level": 1}, False), ({"accuracy_level": 4}, True)]
)
def test_a_product_that_may_be_in_8_bits_has_results_of_its_own(
    level: dict[str, int], *, is_rounded: bool, prepare_quickly: Prepare
) -> None:
    product = node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MS, K=32, N=2, bits=4, block_size=16, **level)
    constants = {"w": np.full((2, 2, 8), 0x97, np.uint8), "s": np.ones(4, np.float32)}
    prepared = prepare_quickly(model([product], [("x", (3, 32), FLOAT)], ["y"], constants)).model
    assert own_outputs(prepared) == ({"y"} if is_rounded else set())

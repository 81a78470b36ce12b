"""Weights in blocks stay so."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


def _parts(**changed: np.ndarray) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {
        "w": np.full((2, 2, 8), 0x97, np.uint8),
        "s": np.ones(4, np.float32),
        "z": np.full(2, 8, np.uint8),
    }
    return {**parts, **changed}


def _prepared(prepare: Prepare, parts: dict[str, np.ndarray], inputs: list[str] | None = None) -> ModelProto:
    read = inputs or ["x", *parts]
    product = node("MatMulNBits", read, ["y"], domain=MS, K=32, N=2, bits=4, block_size=16)
    return prepare(model([product], [("x", (3, 32), FLOAT)], ["y"], parts)).model


def test_a_weight_stays_encoded(prepare_quickly: Prepare) -> None:
    prepared = _prepared(prepare_quickly, _parts())
    assert [each.op_type for each in prepared.graph.node] == ["MatMulNBits"]
    assert {each.domain for each in prepared.opset_import} == {"", MS}
    rows = np.arange(96, dtype=np.float32).reshape(3, 32)
    expected = rows @ np.stack([np.tile([7.0, 9.0], 16) - np.repeat([8.0, 0.0], 16)] * 2, 1)
    assert np.array_equal(run(prepared, {"x": rows})["y"], expected)


def test_a_bias_is_added_behind(prepare_quickly: Prepare) -> None:
    parts = _parts(b=np.ones(2, np.float32))
    prepared = _prepared(prepare_quickly, parts, ["x", "w", "s", "z", "", "b"])
    assert [each.op_type for each in prepared.graph.node] == ["MatMulNBits", "Add"]


def test_a_product_without_rows_is_constant(prepare_quickly: Prepare) -> None:
    product = node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain=MS, K=32, N=2, bits=4, block_size=16)
    built = model([product], [("x", ("n", 32), FLOAT)], ["y"], _parts())
    assert "MatMulNBits" not in {each.op_type for each in prepare_quickly(built, {"x": (0, 32)}).model.graph.node}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"s": np.ones(5, np.float32)}, "5 elements of scales; 4 were expected"),
        ({"w": np.ones((2, 2, 7), np.uint8)}, "28 elements of weights; 32 were expected"),
        ({"z": np.ones(3, np.uint8)}, "3 elements of zero points; 2 were expected"),
        ({"z": np.ones(3, np.float32)}, "3 elements of zero points; 4 were expected"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: dict[str, np.ndarray], reason: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'matmulnbits'.*{reason}"):
        _prepared(prepare_quickly, _parts(**parts))

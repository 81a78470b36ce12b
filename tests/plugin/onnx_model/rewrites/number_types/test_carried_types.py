"""Types carried by others: the prepared model has the same bits as the original."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.plugin.onnx_model.builders import INT64, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("source", [TensorProto.INT32, INT64, TensorProto.UINT32])
@pytest.mark.parametrize(
    ("target", "lowest"),
    [(TensorProto.UINT4, (1, 15, 0)), (TensorProto.INT4, (1, -1, 0)), (TensorProto.UINT2, (1, 3, 0))],
)
def test_large_integers_keep_their_lowest_bits(
    source: int, target: int, lowest: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    nodes = [node("Cast", ["x"], ["n"], to=target), node("Cast", ["n"], ["y"], name="back", to=TensorProto.INT32)]
    built = model(nodes, [("x", (3,), source)], [("y", (3,), TensorProto.INT32)], opset=25)
    stored = helper.tensor_dtype_to_np_dtype(TensorProto.INT32 if source == TensorProto.UINT32 else source)
    x = np.array([2**24 + 1, 2**30 + 15, 2**28], stored)
    assert tuple(run(prepare_quickly(built).model, {"x": x})["y"]) == lowest


@pytest.mark.parametrize("target", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_the_largest_uint64_are_not_negative_as_small_floats(target: int, prepare_quickly: Prepare) -> None:
    nodes = [node("Cast", ["x"], ["f"], to=target), node("Cast", ["f"], ["y"], name="back", to=TensorProto.FLOAT)]
    built = model(nodes, [("x", (4,), TensorProto.UINT64)], [("y", (4,), TensorProto.FLOAT)], opset=21)
    x = np.array([2**63 + 5, 2**64 - 1, 2**40, 3], np.uint64)
    found = run(prepare_quickly(built).model, {"x": x.view(np.int64)})["y"]
    np.testing.assert_array_equal(found, run(built, {"x": x})["y"])


def test_input_that_is_also_an_output(prepare_quickly: Prepare) -> None:
    kind = TensorProto.UINT16
    built = model([node("Add", ["x", "x"], ["y"])], [("x", (2,), kind)], [("x", (2,), kind), ("y", (2,), kind)])
    found = run(prepare_quickly(built).model, {"x": np.array([3, -1], np.int16)})
    assert found["x"].view(np.uint16).tolist() == [3, 2**16 - 1]
    assert found["y"].view(np.uint16).tolist() == [6, 2**16 - 2]


def test_upper_bits_of_a_float4_are_ignored(prepare_quickly: Prepare) -> None:
    nodes = [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    built = model(nodes, [("x", (16,), TensorProto.FLOAT4E2M1)], [("y", (16,), TensorProto.FLOAT)], opset=23)
    codes = np.arange(16, dtype=np.uint8)
    found = run(prepare_quickly(built).model, {"x": codes | 0xA0})["y"]
    np.testing.assert_array_equal(found, codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32))

"""Vectors of zeros are kept, their scale is 1 where it is more than multiplied by, and integers may be divided by 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sartor.backend
from sartor.onnx_model.rewrites.number_types.stored_constants import with_narrow_doubles
from tests.plugin.onnx_model.builders import FLOAT, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_X = [("x", (3,), FLOAT)]


def test_zeros_have_the_scale_1() -> None:
    outputs = [("q", (3,), TensorProto.UINT8), ("s", (), FLOAT), ("z", (), TensorProto.UINT8)]
    built = model([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], _X, outputs)
    ready = sartor.backend.prepare(built)
    for values in ([0, 0, 0], [0, 1, -1]):
        x = np.array(values, np.float32)
        for actual, expected in zip(ready.run([x]), run(built, {"x": x}).values(), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_scale_that_is_multiplied_by_stays(prepare_quickly: Prepare) -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    kinds = [item.op_type for item in prepare_quickly(model(nodes, _X, ["y"])).model.graph.node]
    assert "Where" not in kinds


def test_a_scale_that_multiplies_sums_stays(prepare_quickly: Prepare) -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["sums"]),
        node("Cast", ["sums"], ["reals"], to=FLOAT),
        node("Mul", ["s", "factor"], ["both"]),
        node("Mul", ["reals", "both"], ["y"]),
    ]
    constants = {"w": np.ones((3, 2), np.int8), "factor": np.float32(0.5)}
    kinds = [item.op_type for item in prepare_quickly(model(nodes, _X, ["y"], constants)).model.graph.node]
    assert "Where" not in kinds


def test_a_scale_that_multiplies_other_numbers_is_1_for_zeros() -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("Mul", ["s", "two"], ["y"])]
    outputs = [("q", (3,), TensorProto.UINT8), ("y", (), FLOAT)]
    ready = sartor.backend.prepare(model(nodes, _X, outputs, {"two": np.float32(2)}))
    assert ready.run([np.zeros(3, np.float32)])[1] == 2


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_no_divisor_ends_the_process(dtype: type[np.integer]) -> None:
    limits, kind = np.iinfo(dtype), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Div", ["x", "d"], ["quotients"]), node("Mod", ["x", "d"], ["rests"])]
    ends = [[(name, (5,), kind) for name in names] for names in (("x", "d"), ("quotients", "rests"))]
    ready = sartor.backend.prepare(model(nodes, ends[0], ends[1]))
    values = np.array([7, limits.min, limits.max, 0, 9], dtype)
    for divisor in (0, limits.max, -1, 2) if limits.min else (0, limits.max, 2):
        quotients, rests = ready.run([values, np.full(5, divisor, dtype)])
        wide = [int(value) for value in values]
        expected = [each if divisor == 0 else int(each / divisor) if abs(each) < 99 else None for each in wide]
        for each, quotient in zip(expected, quotients, strict=True):
            assert each is None or quotient == each
        assert divisor not in (0, -1) or not rests.any()
        assert not limits.min or divisor != -1 or quotients[1] == limits.min


def test_divisors_that_are_known_stay(prepare_quickly: Prepare) -> None:
    sources, constants = [("x", (3,), TensorProto.INT32)], {"d": np.array([3, 5, -2], np.int32)}
    prepared = prepare_quickly(
        model([node("Div", ["x", "d"], ["y"])], sources, [("y", (3,), TensorProto.INT32)], constants)
    )
    assert [item.op_type for item in prepared.model.graph.node] == ["Div"]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_vectors_without_a_size_become_zeros(kind: type, order: int, prepare_quickly: Prepare) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    small = [1e-25] * 4 if kind is np.float32 else [3, 4, 0, 0]
    values: Any = np.array([[0, -0.0, 0, 0], small, [3, -4, 1, 2]], kind)
    nodes = [node("LpNormalization", ["x"], ["y"], p=order)]
    built = model(nodes, [("x", (3, 4), element)], [("y", (3, 4), element)])
    # Constants of float64 are stored as float32, where the smallest one of float64 is 0.
    actual = run(with_narrow_doubles(prepare_quickly(built).model), {"x": values})["y"]
    np.testing.assert_allclose(actual, run(built, {"x": values})["y"], rtol=2e-3 if kind is np.float16 else 1e-6)

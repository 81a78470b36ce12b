"""Vectors of zeros are kept, their scale is 1 where it is more than multiplied by, and integers may be divided by 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor.backend
from sartor.onnx_model.rewrites.number_types.stored_constants import with_narrow_doubles
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.together import joined

_X = [("x", (3,), FLOAT)]
_INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


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


def test_no_divisor_ends_the_process() -> None:
    ready = sartor.backend.prepare(joined({dtype.__name__: _dividing(dtype) for dtype in _INTEGERS}))
    limits = [np.iinfo(dtype) for dtype in _INTEGERS]
    values = [np.array([7, limit.min, limit.max, 0, 9], limit.dtype) for limit in limits]
    for divisors in (
        [0] * len(limits),
        [limit.max for limit in limits],
        [-1 if limit.min else 2 for limit in limits],
        [2] * len(limits),
    ):
        dividing = [np.full(5, divisor, limit.dtype) for divisor, limit in zip(divisors, limits, strict=True)]
        results = iter(ready.run([array for pair in zip(values, dividing, strict=True) for array in pair]))
        for limit, numbers, divisor in zip(limits, values, divisors, strict=True):
            _check_divided(limit, numbers, divisor, next(results), next(results))


def _dividing(dtype: type[np.integer]) -> ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Div", ["x", "d"], ["quotients"]), node("Mod", ["x", "d"], ["rests"])]
    ends = [[(name, (5,), kind) for name in names] for names in (("x", "d"), ("quotients", "rests"))]
    return model(nodes, ends[0], ends[1])


def _check_divided(limit: np.iinfo[Any], numbers: Array, divisor: int, quotients: Array, rests: Array) -> None:
    told = f"{limit.dtype} by {divisor}"
    wide = [int(value) for value in numbers]
    expected = [value if divisor == 0 else int(value / divisor) if abs(value) < 99 else None for value in wide]
    for known, quotient in zip(expected, quotients, strict=True):
        assert known is None or quotient == known, told
    assert divisor not in (0, -1) or not rests.any(), told
    assert not limit.min or divisor != -1 or quotients[1] == limit.min, told


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

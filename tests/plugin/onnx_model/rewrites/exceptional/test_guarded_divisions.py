"""Divisions by zero, extremes of NaN, and data without elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor
import sartor.backend
from sartor.onnx_model.rewrites.number_types.stored_constants import with_narrow_doubles
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, ints, model, node, run, weights
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


_EXTREMES_X = np.array([np.nan, 1, np.nan, -3], np.float32)
_Y = np.array([2, np.nan, np.nan, 0.5], np.float32)


@pytest.mark.parametrize("constant", [None, _Y, np.array([2, 1, 0, 4], np.float32)])
def test_nan_of_both_operands(constant: Array | None) -> None:
    nodes = [
        node(operator, operands, [f"{operator}{index}"], name=f"{operator}{index}")
        for operator in ("Max", "Min")
        for index, operands in enumerate((["x", "y"], ["y", "x"]))
    ]
    inputs = [("x", (4,), FLOAT), ("y", (4,), FLOAT)][: 2 if constant is None else 1]
    outputs = [(each.output[0], (4,), FLOAT) for each in nodes]
    built = model(nodes, inputs, outputs, {} if constant is None else {"y": constant})
    feeds = {"x": _EXTREMES_X, "y": _Y} if constant is None else {"x": _EXTREMES_X}
    actual = sartor.backend.prepare(built).run([*feeds.values()])
    for value, expected in zip(actual, run(built, feeds).values(), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_nan_of_the_first_of_several_operands(operator: str) -> None:
    operands = {name: np.roll(np.array([np.nan, 1, -2, 3], np.float32), turn) for turn, name in enumerate("xyz")}
    built = model(
        [node(operator, [*operands], ["w"])], [(name, (4,), FLOAT) for name in operands], [("w", (4,), FLOAT)]
    )
    (found,) = sartor.backend.prepare(built).run([*operands.values()])
    np.testing.assert_array_equal(found, run(built, operands)["w"])


def test_a_constant_number_comes_first(prepare_quickly: Prepare) -> None:
    built = model([node("Max", ["x", "zero"], ["y"])], [("x", (4,), FLOAT)], ["y"], {"zero": np.float32(0)})
    (only,) = prepare_quickly(built).model.graph.node
    assert (only.op_type, [*only.input]) == ("Max", ["zero", "x"])


def test_nan_is_the_largest_of_a_selection() -> None:
    values = np.array([[9, 1, np.nan, 3, 2, 10], [1, -np.inf, np.inf, np.nan, np.nan, 0]], np.float32)
    nodes, results, constants = [], [], {}
    for largest, count in itertools.product((0, 1), (1, 3, 6)):
        y, i, k = (f"{letter}{largest}{count}" for letter in "yik")
        nodes.append(node("TopK", ["x", k], [y, i], name=y, largest=largest))
        results += [(y, (2, count), FLOAT), (i, (2, count), INT64)]
        constants[k] = np.array([count])
    built = model(nodes, [("x", (2, 6), FLOAT)], results, constants)
    found = sartor.backend.prepare(built).run([values])
    for value, expected in zip(found, run(built, {"x": values}).values(), strict=True):
        np.testing.assert_array_equal(value, expected)


_BFLOAT16 = TensorProto.BFLOAT16


@pytest.mark.parametrize("is_kept", [0, 1])
def test_a_mean_over_no_named_axes(is_kept: int, prepare_quickly: Prepare) -> None:
    mean = node("ReduceMean", ["x", "axes"], ["y"], noop_with_empty_axes=is_kept)
    built = model([mean], [("x", (2, 3), FLOAT)], ["y"], {"axes": ints()}, opset=18)
    x = weights(2, 3)
    expected = x if is_kept else x.mean(keepdims=True)
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"], expected, rtol=1e-6)


def test_an_index_without_numbers_is_that_of_the_whole_tensor(prepare_quickly: Prepare) -> None:
    built = model(
        [node("ScatterND", ["x", "places", "u"], ["y"])],
        [("x", (2, 3), FLOAT), ("u", (1, 2, 3), FLOAT)],
        ["y"],
        {"places": np.empty((1, 0), np.int64)},
    )
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == ["ScatterND"]


@pytest.mark.parametrize(
    ("operator", "shapes", "result"),
    [
        ("MatMul", [(20, 0), (0, 30)], (20, 30)),
        ("Gemm", [(2, 0), (0, 3)], (2, 3)),
        ("ReduceMean", [(2, 0)], (1, 1)),
    ],
)
def test_sums_of_nothing_in_bfloat16_are_0(
    operator: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    inputs = [(f"x{index}", shape, _BFLOAT16) for index, shape in enumerate(shapes)]
    built = model([node(operator, [each[0] for each in inputs], ["y"])], inputs, [("y", result, _BFLOAT16)])
    prepared = prepare_quickly(built, {name: shape for name, shape, _ in inputs}).model
    assert operator not in [each.op_type for each in prepared.graph.node]
    prepared.graph.node.append(helper.make_node("Cast", ["y"], ["wide"], to=FLOAT))
    prepared.graph.output[0].CopyFrom(helper.make_tensor_value_info("wide", FLOAT, result))
    del prepared.graph.input[:]
    np.testing.assert_array_equal(run(prepared, {})["wide"], np.zeros(result))

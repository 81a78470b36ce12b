"""Reductions, bounds of numbers, activations and pads that wrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor import backend
from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

INT32 = TensorProto.INT32
_VALUES = np.array([[1e5, -1, 3], [-np.inf] * 3, [np.inf, 1, 2], [-1e5] * 3, [np.nan, 1, 2]], np.float32)


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceLogSumExp"])
@pytest.mark.parametrize(("inputs", "keep"), [(["x"], 0), (["x"], 1), (["x", "none"], 1)])
def test_without_axes_all_are_reduced(operator: str, inputs: list[str], keep: int, prepare_quickly: Prepare) -> None:
    constants = {"none": np.zeros(0, np.int64)} if len(inputs) > 1 else {}
    nodes = [node(operator, inputs, ["y"], keepdims=keep)]
    built = model(nodes, [("x", (1, 1), FLOAT)], ["y"], constants, opset=18)
    prepared, feeds = prepare_quickly(built).model, {"x": np.array([[-2.5]], np.float32)}
    assert operator not in [item.op_type for item in prepared.graph.node]
    np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], rtol=1e-6)


@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("opset", [13, 18])
def test_the_largest_value_is_subtracted_first(keeps: int, opset: int, prepare_quickly: Prepare) -> None:
    is_input = opset == 18
    nodes = [
        node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=keeps)
        if is_input
        else node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=keeps)
    ]
    constants = {"axes": np.array([-1])} if is_input else {}
    built = model(nodes, [("x", _VALUES.shape, FLOAT)], ["y"], constants, opset=opset)
    prepared = prepare_quickly(built).model
    kinds = [item.op_type for item in prepared.graph.node]
    assert "ReduceLogSumExp" not in kinds
    assert kinds.index("ReduceMax") < kinds.index("Exp")
    np.testing.assert_allclose(run(prepared, {"x": _VALUES})["y"], run(built, {"x": _VALUES})["y"], rtol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("keeps", [0, 1])
def test_logarithms_of_other_types_are_taken_in_wide_floats(kind: type, keeps: int, prepare_quickly: Prepare) -> None:
    values: Array = np.array([[3e4, -1, 3], [-5, -9, -8], [200, 1, 250]], kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=keeps)]
    built = model(nodes, [("x", (3, 3), element)], [("y", None, element)], {"axes": np.array([1])}, opset=18)
    wide = values.astype(float)
    largest = wide.max(axis=1, keepdims=True)
    expected = largest + np.log(np.exp(wide - largest).sum(axis=1, keepdims=True))
    actual = run(prepare_quickly(built).model, {"x": values})["y"]
    np.testing.assert_allclose(actual.reshape(3, 1), expected.astype(kind), rtol=1e-3)
    assert actual.ndim == 1 + keeps


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("kind", [np.float64, np.int32, np.int64])
def test_norms_keep_all_digits(kind: type, opset: int, prepare_quickly: Prepare) -> None:
    values: Array = np.array([[16777217, 0, 0], [3, 4, 12], [0, 0, 0]], kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs, options = (["x", "axes"], {}) if opset == 18 else (["x"], {"axes": [1]})
    nodes = [node("ReduceL2", inputs, ["y"], keepdims=0, **options)]
    constants = {"axes": np.array([1])} if opset == 18 else {}
    built = model(nodes, [("x", (3, 3), element)], [("y", None, element)], constants, opset=opset)
    prepared = prepare_quickly(built).model
    assert "ReduceL2" not in [item.op_type for item in prepared.graph.node]
    assert run(prepared, {"x": values})["y"].tolist() == [16777217, 13, 0]


@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize(("kind", "element"), [(np.int32, INT32), (np.int64, INT64)])
def test_means_of_integers_are_divided_sums(kind: type, element: int, keeps: int, prepare_quickly: Prepare) -> None:
    values: Array = np.array([[7, -2, -9], [-1, 0, 0]], kind)
    nodes = [node("ReduceMean", ["x", "axes"], ["y"], keepdims=keeps)]
    output = [("y", (2, 1) if keeps else (2,), element)]
    built = model(nodes, [("x", (2, 3), element)], output, {"axes": np.array([-1])}, opset=18)
    prepared = prepare_quickly(built).model
    assert "ReduceMean" not in [item.op_type for item in prepared.graph.node]
    np.testing.assert_array_equal(run(prepared, {"x": values})["y"], run(built, {"x": values})["y"])


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_logarithms_of_sums_of_integers_do_not_wrap(kind: type, prepare_quickly: Prepare) -> None:
    quarter = np.iinfo(kind).max // 4
    values: Array = np.array([[quarter] * 6, [1] * 6], kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("ReduceLogSum", ["x", "axes"], ["y"], keepdims=0)]
    built = model(nodes, [("x", (2, 6), element)], [("y", None, element)], {"axes": np.array([1])}, opset=18)
    expected = np.trunc(np.log(values.astype(float).sum(axis=1)))
    np.testing.assert_array_equal(run(prepare_quickly(built).model, {"x": values})["y"], expected)


_X = np.array([-3.0, -0.5, 0.0, 2.0, math.nan], np.float32)


def _clip(bounds: dict[str, float | None], *, are_inputs: bool) -> ModelProto:
    names = [name for name in bounds if bounds[name] is not None]
    read = ["x", *(name if name in names else "" for name in ("low", "high"))]
    inputs = [("x", (5,), FLOAT), *((name, (), FLOAT) for name in names if are_inputs)]
    constants = {} if are_inputs else {name: np.array(bounds[name], np.float32) for name in names}
    return model([node("Clip", read, ["y"], name="clip")], inputs, [("y", (5,), FLOAT)], constants)


@pytest.mark.parametrize("are_inputs", [False, True])
@pytest.mark.parametrize(("low", "high"), [(math.nan, 1.0), (-1.0, math.nan), (math.nan, math.nan), (None, math.nan)])
def test_bounds_that_are_nan_bound_nothing(low: float | None, high: float | None, *, are_inputs: bool) -> None:
    bounds = {"low": low, "high": high}
    original = _clip(bounds, are_inputs=are_inputs)
    given = {name: np.array(bound, np.float32) for name, bound in bounds.items() if bound is not None}
    feeds = {"x": _X, **(given if are_inputs else {})}
    (found,) = backend.run_model(original, [*feeds.values()])
    np.testing.assert_array_equal(found, run(original, feeds)["y"])


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

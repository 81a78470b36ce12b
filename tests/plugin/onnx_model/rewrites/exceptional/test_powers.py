"""Powers keep their results when they are written out, and stay where IREE computes them right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

_BASES = np.array([np.nan, np.inf, -np.inf, -1, -2, -0.5, 0, -0.0, 3, 0.7, 1, -8])
_EXPONENTS = np.array([0, 1, 2, 3, -1, -2, -3, 0.5, -0.5, 1 / 3, 1.5, np.inf, -np.inf, np.nan, 4096, 7])
_INTEGERS, _COUNTS = np.array([-3, -1, 0, 1, 2, 5]), np.array([0, 1, 2, 3, 7, 63, 64, 101])


def _element(values: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(values.dtype)


def _check(base: Array, exponent: Array, prepare: Prepare, *, is_constant: bool) -> list[str]:
    """Compare with the model as it is; returns the operators."""
    inputs = [("x", base.shape, _element(base)), ("y", exponent.shape, _element(exponent))]
    constants = {"y": exponent} if is_constant else {}
    output = [("z", np.broadcast_shapes(base.shape, exponent.shape), _element(base))]
    built = model([node("Pow", ["x", "y"], ["z"])], inputs[: 2 - is_constant], output, constants, opset=18)
    feeds = {name: value for name, value in (("x", base), ("y", exponent)) if name not in constants}
    prepared = prepare(built).model
    actual, expected = run(prepared, feeds)["z"], run(built, feeds)["z"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5 if base.dtype != np.float16 else 2e-3)
    return [item.op_type for item in prepared.graph.node]


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_every_base_to_every_power(kind: type, is_constant: bool, prepare_quickly: Prepare) -> None:
    kinds = _check(_BASES.astype(kind), _EXPONENTS.astype(kind)[:, None], prepare_quickly, is_constant=is_constant)
    assert kinds.index("Abs") < kinds.index("Pow")


@pytest.mark.parametrize("power", [-1, -2, -3, -100, 100, 101, 0.5, -0.5, 1.5, np.inf, -np.inf])
def test_constant_powers_that_are_written_out(power: float, prepare_quickly: Prepare) -> None:
    kinds = _check(_BASES.astype(np.float32), np.array([power], np.float32), prepare_quickly, is_constant=True)
    assert ("Reciprocal" if power in (-1, -2, -3) else "Abs") in kinds


@pytest.mark.parametrize("power", [np.float32(0), np.float32(2), np.int64(3), np.int32(7), np.array([4], np.float32)])
def test_products_stay_one_node(power: Array, prepare_quickly: Prepare) -> None:
    assert _check(_BASES.astype(np.float32), np.asarray(power), prepare_quickly, is_constant=True) == ["Pow"]


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_roots_of_what_is_never_negative_stay(power: float, prepare_quickly: Prepare) -> None:
    nodes = [
        node("Pow", ["x", "two"], ["square"]),
        node("ReduceMean", ["square", "axes"], ["mean"]),
        node("Add", ["mean", "epsilon"], ["variance"]),
        node("Pow", ["variance", "power"], ["y"]),
    ]
    constants = {"two": np.float32(2), "axes": np.array([1]), "epsilon": np.float32(1e-6), "power": np.float32(power)}
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y"], constants, opset=18)
    kinds = [item.op_type for item in prepare_quickly(built).model.graph.node]
    assert kinds == ["Pow", "ReduceMean", "Add", "Pow"]


@pytest.mark.parametrize("power", [-1.0, 2.0])
def test_half_precision(power: float, prepare_quickly: Prepare) -> None:
    bases, exponents = _BASES.astype(np.float16), np.full(_BASES.shape, power, np.float16)
    exponents[1] = 0
    kinds = _check(bases, exponents, prepare_quickly, is_constant=False)
    assert "Abs" in kinds


def test_powers_of_a_constant_above_zero_stay(prepare_quickly: Prepare) -> None:
    built = model([node("Pow", ["two", "x"], ["y"])], [("x", (3,), FLOAT)], ["y"], {"two": np.float32(2)})
    assert [item.op_type for item in prepare_quickly(built).model.graph.node] == ["Pow"]


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("exponent", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers(kind: type, exponent: type, is_constant: bool, prepare_quickly: Prepare) -> None:
    fits = 5 if kind is np.int32 else 6
    powers = _COUNTS[:fits] if exponent is not np.float32 or is_constant else _COUNTS[:5]
    bases = _INTEGERS[1:4] if powers is not _COUNTS[:5] and fits == 6 else _INTEGERS
    kinds = _check(bases.astype(kind), powers.astype(exponent)[:, None], prepare_quickly, is_constant=is_constant)
    assert ("Pow" in kinds) == (exponent is np.float32 and not is_constant)


@pytest.mark.parametrize("power", [63, 64, 101, -1, -2])
def test_long_powers_of_units(power: int, prepare_quickly: Prepare) -> None:
    units = np.array([1, -1])
    _check(units, np.array([power]), prepare_quickly, is_constant=False)


@pytest.mark.parametrize("exponent", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers_to_floats_lose_nothing(kind: type, exponent: type) -> None:
    """IREE's floating-point powers of 5 and 1000 to 2 are not whole, and lose one as integers."""
    bases, powers = [5, 1000, 10, -3, 9, 7, 2, 1, -1], [2, 2, 9, 3, 0.5, 1.5, -1, np.inf, 101]
    x: Any = np.array(bases, kind)
    y: Any = np.array(powers, exponent)
    inputs = [(name, values.shape, _element(values)) for name, values in (("x", x), ("y", y))]
    built = model([node("Pow", ["x", "y"], ["z"])], inputs, [("z", x.shape, _element(x))], opset=18)
    (actual,) = sartor.backend.prepare(built).run([x, y])
    np.testing.assert_array_equal(actual, [25, 1000000, 10**9, -27, 3, 18, 0, 1, -1])


@pytest.mark.parametrize("power", [0.5, 1 / 3, 1.5])
def test_integers_to_a_broken_constant_are_truncated(power: float, prepare_quickly: Prepare) -> None:
    x = np.array([27, 1000, 9, 64, 2, 0, 1, 8], np.int32)
    kinds = _check(x, np.array([power], np.float32), prepare_quickly, is_constant=True)
    assert kinds.index("Pow") < kinds.index("Round") < kinds.index("Cast", 1)

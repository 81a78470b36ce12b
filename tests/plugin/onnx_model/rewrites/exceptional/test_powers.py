"""Powers that are written out, and remainders of floats, keep their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import sartor
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


_VALUES = np.array([0, 1, 0.1, 2.5, np.pi, 88, 999.99, 1e4, 123450, 1e6, np.inf, np.nan])
_DIVISORS = np.array([1, 0.1, 1.5, 3.7, 2 * np.pi, 100, 6e4, np.inf, np.nan, 0])


def _computed(values: Array, divisors: Array, prepare: Prepare, **options: int) -> tuple[Array, list[str]]:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    inputs = [(name, each.shape, kind) for name, each in (("x", values), ("y", divisors))]
    built = model([node("Mod", ["x", "y"], ["z"], **options)], inputs, [("z", None, kind)])
    prepared = prepare(built).model
    kinds = [each.op_type for each in prepared.graph.node]
    return run(prepared, {"x": values, "y": divisors})["z"], kinds


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_remainders_are_exact(kind: type, prepare_quickly: Prepare) -> None:
    with np.errstate(all="ignore"):
        signed: Array = np.concatenate([_VALUES, -_VALUES]).astype(kind)[:, None]
        divisors: Array = np.concatenate([_DIVISORS, -_DIVISORS]).astype(kind)
        expected = np.fmod(signed, divisors)
    actual, kinds = _computed(signed, divisors, prepare_quickly, fmod=1)
    assert "Mod" not in kinds
    np.testing.assert_array_equal(actual, expected)


def test_remainders_of_float64_may_have_the_sign_of_the_divisor(prepare_quickly: Prepare) -> None:
    signed: Array = np.concatenate([_VALUES, -_VALUES])[:, None]
    divisors: Array = np.concatenate([_DIVISORS, -_DIVISORS])
    with np.errstate(all="ignore"):
        expected = np.mod(signed, divisors)
    actual, kinds = _computed(signed, divisors, prepare_quickly, fmod=0)
    assert "Mod" not in kinds
    np.testing.assert_array_equal(actual, expected)


def _random(count: int, seed: int, *, most_bits: float) -> tuple[Array, Array]:
    """Values and divisors of float32 whose quotients have up to so many bits, at all sizes of normal numbers."""
    numbers = np.random.default_rng(seed)
    bits = numbers.uniform(-1, most_bits, count)
    divisors = numbers.uniform(1, 2, count) * 2.0 ** numbers.integers(-126, 127 - bits.astype(int), count)
    signs = numbers.choice([-1, 1], (2, count))
    values = np.minimum(divisors * 2.0**bits, np.finfo(np.float32).max)
    return (signs[0] * values).astype(np.float32), (signs[1] * divisors).astype(np.float32)


def test_random_quotients_of_46_bits(prepare_quickly: Prepare) -> None:
    values, divisors = _random(50000, 0, most_bits=45.9)
    whole = np.round(values.astype(float) / divisors)[:20000].clip(-(2**20), 2**20)
    values[:20000] = (whole * divisors[:20000]).astype(np.float32)
    actual, _ = _computed(values, divisors, prepare_quickly, fmod=1)
    np.testing.assert_array_equal(actual, np.fmod(values, divisors))


def test_random_quotients_of_46_bits_in_float64(prepare_quickly: Prepare) -> None:
    numbers = np.random.default_rng(2)
    divisors = numbers.uniform(1, 2, 20000) * 2.0 ** numbers.integers(-900, 900, 20000)
    values = divisors * np.append(2.0 ** numbers.uniform(-1, 45.9, 10000), numbers.integers(1, 2**20, 10000))
    actual, _ = _computed(values, divisors, prepare_quickly, fmod=1)
    np.testing.assert_array_equal(actual, np.fmod(values, divisors))


def test_larger_quotients_leave_0(prepare_quickly: Prepare) -> None:
    values, divisors = np.array([3.4e38, -1e30, 1e30, 1], np.float32), np.array([3, 7, 1e-30, -1e-38], np.float32)
    actual, _ = _computed(values, divisors, prepare_quickly, fmod=1)
    np.testing.assert_array_equal(actual, [0, 0, 0, 0])


def test_the_division_has_the_name_of_the_node(prepare_quickly: Prepare) -> None:
    built = model(
        [node("Mod", ["x", "y"], ["z"], fmod=1)], [(name, (3,), FLOAT) for name in "xy"], [("z", (3,), FLOAT)]
    )
    assert {each.name: each.op_type for each in prepare_quickly(built).model.graph.node}["mod"] == "Div"


def test_compiled_remainders_are_exact() -> None:
    values, divisors = _random(20000, 1, most_bits=40)
    wide = np.append(values, [1e10, 5e8, np.inf, 4, 1e30]), np.append(divisors, [3, 3, 2, np.inf, 1e-30])
    narrow = np.meshgrid([0, 1, 0.1, 2.5, 999.5, 1e4, 65504, 6.1e-5, -7], [1.5, 0.1, 6e4, 6.1e-5])
    feeds: list[Array] = [each.astype(np.float32) for each in wide] + [each.astype(np.float16) for each in narrow]
    nodes = [node("Mod", [*names], [names], name=names, fmod=1) for names in ("ab", "cd")]
    kinds = [(feed.shape, helper.np_dtype_to_tensor_dtype(feed.dtype)) for feed in feeds]
    inputs = [(name, *kind) for name, kind in zip("abcd", kinds, strict=True)]
    built = model(nodes, inputs, [("ab", *kinds[0]), ("cd", *kinds[2])])
    actual, short = sartor.backend.prepare(built).run(feeds)
    with np.errstate(all="ignore"):
        expected = np.append(np.fmod(feeds[0], feeds[1])[:-1], np.float32(0))
    # Subnormal numbers count as 0.
    expected[np.abs(expected) < np.finfo(np.float32).tiny] = 0
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(short, np.fmod(feeds[2], feeds[3]))


def test_integers_stay(prepare_quickly: Prepare) -> None:
    operators = _computed(np.array([7], np.int32), np.array([-3], np.int32), prepare_quickly, fmod=1)[1]
    assert operators[-1] == "Mod"
    assert not {"Cast", "Div", "Floor"} & {*operators}

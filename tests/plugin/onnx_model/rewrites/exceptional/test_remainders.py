"""Remainders of floats have no rounding while quotients have at most 46 bits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sartor.backend
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

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

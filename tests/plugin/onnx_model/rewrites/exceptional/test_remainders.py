"""Remainders of floats have no rounding while quotients have fewer than 24 bits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.plugin.onnx_model.builders import Array, model, node, run
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


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_remainders_are_exact(kind: type, prepare_quickly: Prepare) -> None:
    with np.errstate(all="ignore"):
        signed: Array = np.concatenate([_VALUES, -_VALUES]).astype(kind)[:, None]
        divisors: Array = np.concatenate([_DIVISORS, -_DIVISORS]).astype(kind)
        expected = np.fmod(signed, divisors)
    actual, kinds = _computed(signed, divisors, prepare_quickly, fmod=1)
    assert "Mod" not in kinds
    np.testing.assert_array_equal(actual, expected)


def test_random_quotients_of_24_bits(prepare_quickly: Prepare) -> None:
    numbers = np.random.default_rng(0)
    divisors = numbers.uniform(0.5, 2, 20000).astype(np.float32)
    values = (divisors * numbers.integers(1, 2**23, 20000)).astype(np.float32)
    actual, _ = _computed(values, divisors, prepare_quickly, fmod=1)
    np.testing.assert_array_equal(actual, np.fmod(values, divisors))


def test_integers_stay(prepare_quickly: Prepare) -> None:
    assert _computed(np.array([7], np.int32), np.array([-3], np.int32), prepare_quickly, fmod=1)[1] == ["Mod"]

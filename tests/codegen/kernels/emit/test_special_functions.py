"""Functions against their values in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.special_functions import erf, exp, tanh
from sartor.codegen.mlir.iree_compiler import ir
from sartor.runtime.driver.signature import Array
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, run_kernels

POINTS = np.concatenate(
    [np.linspace(-7, 7, 4001), np.logspace(-37, 0, 400), [0.0, -0.0, np.inf, -np.inf, np.nan, 4.0, -4.0]]
).astype(np.float32)
GIVEN = np.resize(POINTS, -(-POINTS.size // LANES) * LANES)
MAX_ERROR = 5e-7


# Over which exp is a normal number, with some to either side.
EXPONENTS = np.resize(
    np.concatenate(
        [np.linspace(-87, 88.7, 8001), np.linspace(-1, 1, 2001), [-104, 88.8, 1000, np.inf, -np.inf, np.nan]]
    ),
    10016,
).astype(np.float32)
MAX_EXP_ERROR = 3e-7


def _computing(
    function: Callable[[Assembler, ir.Value], ir.Value], given: Array, *, is_rough: bool = False
) -> SmallKernel:
    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        asm.is_rough = is_rough
        source, target = memories
        asm.repeat(
            0,
            given.size,
            LANES,
            lambda index: asm.store(function(asm, asm.load(source, index, LANES)), target, index, LANES),
        )

    return SmallKernel(write, [given], given.size)


@pytest.fixture(scope="module")
def results() -> dict[str, Array]:
    exact = {"erf": _computing(erf, GIVEN), "exp": _computing(exp, EXPONENTS), "tanh": _computing(tanh, GIVEN)}
    rough = {
        "rough_erf": _computing(erf, GIVEN, is_rough=True),
        "rough_exp": _computing(exp, EXPONENTS, is_rough=True),
    }
    return run_kernels(exact | rough)


@pytest.fixture(scope="module")
def computed(results: dict[str, Array]) -> Array:
    return results["erf"]


@pytest.mark.parametrize(("name", "most"), [("exp", MAX_EXP_ERROR), ("rough_exp", 1e-4)])
def test_exp_is_right_to_a_few_units_in_the_last_place(name: str, most: float, results: dict[str, Array]) -> None:
    with np.errstate(over="ignore"):
        expected = np.exp(EXPONENTS.astype(np.float64))
        normal = (expected >= 2 * np.finfo(np.float32).tiny) & np.isfinite(expected.astype(np.float32))
    assert normal.sum() > 9000
    error = np.abs(results[name][normal].astype(np.float64) - expected[normal])
    assert (error <= most * expected[normal]).all()


@pytest.mark.parametrize("name", ["exp", "rough_exp"])
def test_exp_ends_at_zero_and_infinity_and_is_no_number_at_none(name: str, results: dict[str, Array]) -> None:
    found = results[name]
    assert (found[EXPONENTS <= -104] == 0).all()
    assert np.isposinf(found[EXPONENTS >= 88.75]).all()
    assert np.isnan(found[np.isnan(EXPONENTS)]).all()


def test_erf_is_right_to_a_few_units_in_the_last_place(computed: Array) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.array([math.erf(float(each)) for each in GIVEN[finite]])
    assert (np.abs(computed[finite] - expected) <= MAX_ERROR * np.abs(expected)).all()


def test_erf_is_one_at_infinity_and_no_number_at_none(computed: Array) -> None:
    assert (computed[GIVEN >= 4] == 1).all()
    assert (computed[GIVEN <= -4] == -1).all(), "GELU ends at zero"
    assert np.isnan(computed[np.isnan(GIVEN)]).all()


def test_tanh_is_right_to_a_few_units_in_the_last_place(results: dict[str, Array]) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.tanh(GIVEN[finite].astype(np.float64))
    assert (np.abs(results["tanh"][finite] - expected) <= MAX_ERROR * np.abs(expected)).all()


def test_tanh_is_one_at_infinity_and_no_number_at_none(results: dict[str, Array]) -> None:
    found = results["tanh"]
    assert (found[np.inf == GIVEN] == 1).all()
    assert (found[-np.inf == GIVEN] == -1).all()
    assert np.isnan(found[np.isnan(GIVEN)]).all()


def test_the_rough_erf_is_right_to_what_bf16_holds_of_one(results: dict[str, Array]) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.array([math.erf(float(each)) for each in GIVEN[finite]])
    found = results["rough_erf"]
    assert (np.abs(found[finite] - expected) <= 2.0**-12).all()
    assert np.abs(np.abs(found[np.abs(GIVEN) >= 2.75]) - 1).max() <= 1e-6
    assert np.isnan(found[np.isnan(GIVEN)]).all()

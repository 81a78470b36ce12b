"""Divisions by constants, scaled sums and functions give what they stand for."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.rounded_numbers import clip, divided, rounded, scaled
from sartor.codegen.kernels.emit.special_functions import erf, exp, tanh
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.runtime.driver.signature import Array
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, run_kernels

SCALES = [np.float32(each) for each in (0.023535222, 0.0078125, 3.0, 1.17e-3, 0.99999994, 1.9999999)]
CLIPS = [(20.0, 0.023535222), (3.4e38, 0.1), (np.inf, 0.3)]
FACTOR, BIAS = np.float32(1.7e-4), -12345
_RANDOM = np.random.default_rng(0)
_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -3e30], np.float32)
_TIES = (np.arange(-300, 300) + 0.5).astype(np.float32)
NUMBERS = np.resize(
    np.concatenate(
        [_RANDOM.standard_normal(8000).astype(np.float32) * 30, _SPECIAL, *[_TIES * scale for scale in SCALES]]
    ),
    16384,
)
SUMS = _RANDOM.integers(-(1 << 20), 1 << 20, 4096).astype(np.float32)

Compute = Callable[[Assembler, ir.Value], ir.Value]


def _constant(asm: Assembler, number: np.float32) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), float(number)))


def _dividing(number: np.float32) -> Compute:
    def compute(asm: Assembler, value: ir.Value) -> ir.Value:
        found = divided(asm, value, _constant(asm, number))
        assert found is not None
        return found

    return compute


def _clipping(bound: float, number: float) -> Compute:
    """A quotient of what is clipped on both sides."""

    def compute(asm: Assembler, value: ir.Value) -> ir.Value:
        for sign in (-1.0, 1.0):
            value = clip(asm, value, _constant(asm, np.float32(sign * bound)), is_least=sign < 0)
        found = divided(asm, value, _constant(asm, np.float32(number)))
        assert found is not None
        return found

    return compute


def _scaling(asm: Assembler, value: ir.Value) -> ir.Value:
    factor, bias = arith.addf(_constant(asm, FACTOR), _constant(asm, np.float32(0))), _constant(asm, BIAS * FACTOR)
    found = divided(asm, scaled(asm, value, bias, factor), _constant(asm, SCALES[0]))
    assert found is not None
    return found


def _kernel(compute: Compute, given: Array) -> SmallKernel:
    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        def every(index: Index) -> None:
            asm.store(compute(asm, asm.load(memories[0], index, LANES)), memories[1], index, LANES)

        asm.repeat(0, given.size, LANES, every)

    return SmallKernel(write, [given], given.size)


@pytest.fixture(scope="module")
def results() -> dict[str, Array]:
    dividing = {f"by{index}": _kernel(_dividing(scale), NUMBERS) for index, scale in enumerate(SCALES)}
    clipping = {f"clip{index}": _kernel(_clipping(*each), NUMBERS) for index, each in enumerate(CLIPS)}
    return run_kernels({**dividing, **clipping, "scaled": _kernel(_scaling, SUMS)})


@pytest.mark.parametrize("index", range(len(SCALES)))
def test_corrected_products_are_quotients(index: int, results: dict[str, Array]) -> None:
    np.testing.assert_array_equal(results[f"by{index}"], NUMBERS / SCALES[index])


@pytest.mark.parametrize("index", range(len(CLIPS)))
def test_quotients_of_what_is_clipped_are_quotients(index: int, results: dict[str, Array]) -> None:
    """Also where they are infinite, though what is divided is not."""
    bound, number = (np.float32(each) for each in CLIPS[index])
    # What is no number becomes the lower bound.
    clipped = np.clip(np.where(np.isnan(NUMBERS), -bound, NUMBERS), -bound, bound)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(results[f"clip{index}"], clipped / number)


def test_scaled_sums_are_those_of_integer_operators(results: dict[str, Array]) -> None:
    """As QLinearConv has it: a bias of integers, and the factors' quotient in f32."""
    np.testing.assert_array_equal(results["scaled"], (SUMS + np.float32(BIAS)) * (FACTOR / SCALES[0]))


def test_only_positive_constants_of_common_size_are_divided_by() -> None:
    found: list[ir.Value | None] = []

    def compute(asm: Assembler, value: ir.Value) -> ir.Value:
        found.extend(divided(asm, value, _constant(asm, np.float32(each))) for each in (0.0, -1.5, 1e-30, 1e30))
        found.append(divided(asm, value, value))
        return value

    run_kernels({"none": _kernel(compute, SUMS)})
    assert found == [None] * len(found)
    assert found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are of x86-64")
@pytest.mark.parametrize(("cpu", "has_instruction"), [("x86-64-v3", True), ("x86-64-v2", True), ("x86-64", False)])
def test_ties_are_rounded_to_even_by_the_instruction_where_there_is_one(cpu: str, *, has_instruction: bool) -> None:
    given = np.resize(np.concatenate([_TIES, _SPECIAL]), 1024)
    by_instruction: list[bool] = []

    def compute(asm: Assembler, value: ir.Value) -> ir.Value:
        found = rounded(asm, value)
        by_instruction.append(found.owner.name == "llvm.call_intrinsic")
        return found

    kernel = replace(_kernel(compute, given), target=Target.create("cpu", cpu))
    np.testing.assert_array_equal(run_kernels({"rounded": kernel})["rounded"], np.round(given))
    assert set(by_instruction) == {has_instruction}


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
def special_functions_results() -> dict[str, Array]:
    exact = {"erf": _computing(erf, GIVEN), "exp": _computing(exp, EXPONENTS), "tanh": _computing(tanh, GIVEN)}
    rough = {
        "rough_erf": _computing(erf, GIVEN, is_rough=True),
        "rough_exp": _computing(exp, EXPONENTS, is_rough=True),
    }
    return run_kernels(exact | rough)


@pytest.fixture(scope="module")
def computed(special_functions_results: dict[str, Array]) -> Array:
    return special_functions_results["erf"]


@pytest.mark.parametrize(("name", "most"), [("exp", MAX_EXP_ERROR), ("rough_exp", 1e-4)])
def test_exp_is_right_to_a_few_units_in_the_last_place(
    name: str, most: float, special_functions_results: dict[str, Array]
) -> None:
    with np.errstate(over="ignore"):
        expected = np.exp(EXPONENTS.astype(np.float64))
        normal = (expected >= 2 * np.finfo(np.float32).tiny) & np.isfinite(expected.astype(np.float32))
    assert normal.sum() > 9000
    error = np.abs(special_functions_results[name][normal].astype(np.float64) - expected[normal])
    assert (error <= most * expected[normal]).all()


@pytest.mark.parametrize("name", ["exp", "rough_exp"])
def test_exp_ends_at_zero_and_infinity_and_is_no_number_at_none(
    name: str, special_functions_results: dict[str, Array]
) -> None:
    found = special_functions_results[name]
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


def test_tanh_is_right_to_a_few_units_in_the_last_place(special_functions_results: dict[str, Array]) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.tanh(GIVEN[finite].astype(np.float64))
    assert (np.abs(special_functions_results["tanh"][finite] - expected) <= MAX_ERROR * np.abs(expected)).all()


def test_tanh_is_one_at_infinity_and_no_number_at_none(special_functions_results: dict[str, Array]) -> None:
    found = special_functions_results["tanh"]
    assert (found[np.inf == GIVEN] == 1).all()
    assert (found[-np.inf == GIVEN] == -1).all()
    assert np.isnan(found[np.isnan(GIVEN)]).all()


def test_the_rough_erf_is_right_to_what_bf16_holds_of_one(special_functions_results: dict[str, Array]) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.array([math.erf(float(each)) for each in GIVEN[finite]])
    found = special_functions_results["rough_erf"]
    assert (np.abs(found[finite] - expected) <= 2.0**-12).all()
    assert np.abs(np.abs(found[np.abs(GIVEN) >= 2.75]) - 1).max() <= 1e-6
    assert np.isnan(found[np.isnan(GIVEN)]).all()

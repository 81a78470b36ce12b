"""Functions against their values in double precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.assembler import Assembler, Index
from sartor.codegen.kernels.special_functions import erf
from sartor.runtime.signature import Array
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, run_kernels

POINTS = np.concatenate(
    [np.linspace(-7, 7, 4001), np.logspace(-37, 0, 400), [0.0, -0.0, np.inf, -np.inf, np.nan, 4.0, -4.0]]
).astype(np.float32)
GIVEN = np.resize(POINTS, -(-POINTS.size // LANES) * LANES)
MAX_ERROR = 5e-7


@pytest.fixture(scope="module")
def computed() -> Array:
    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        source, target = memories
        asm.repeat(
            0,
            GIVEN.size,
            LANES,
            lambda index: asm.store(erf(asm, asm.load(source, index, LANES)), target, index, LANES),
        )

    return run_kernels({"erf": SmallKernel(write, [GIVEN], GIVEN.size)})["erf"]


def test_erf_is_right_to_a_few_units_in_the_last_place(computed: Array) -> None:
    finite = np.isfinite(GIVEN)
    expected = np.array([math.erf(float(each)) for each in GIVEN[finite]])
    assert (np.abs(computed[finite] - expected) <= MAX_ERROR * np.abs(expected)).all()


def test_erf_is_one_at_infinity_and_no_number_at_none(computed: Array) -> None:
    assert np.abs(computed[np.inf == GIVEN] - 1).max() <= MAX_ERROR
    assert np.abs(computed[-np.inf == GIVEN] + 1).max() <= MAX_ERROR
    assert np.isnan(computed[np.isnan(GIVEN)]).all()

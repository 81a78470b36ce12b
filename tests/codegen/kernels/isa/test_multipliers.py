"""Instructions say which CPUs have them, and outer products are added to the accumulators they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.microkernel import Lhs, Prefetch, Rhs, close_tile, multiply_add, open_tile
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, FMA, INTEGER_DOTS, Fma
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import machine_of
from tests.codegen.kernels.small_kernels import HOST, LANES, SmallKernel, run_kernels


@pytest.mark.parametrize(
    ("instruction", "requirement"),
    [
        (BFLOAT_DOTS, "avx512bf16"),
        (INTEGER_DOTS, "avx512vnni or avxvnni"),
        (BFLOAT, "amx-bf16"),
        (INTEGER, "amx-int8"),
    ],
)
def test_what_a_cpu_has_to_have(instruction: MultiplyInstruction, requirement: str) -> None:
    assert instruction.requirement == requirement


@pytest.mark.parametrize(
    ("instruction", "cpu", "lacking"),
    [
        (INTEGER_DOTS, "cascadelake", None),
        (INTEGER_DOTS, "alderlake", None),
        (INTEGER_DOTS, "skylake-avx512", "avx512vnni"),
        (INTEGER_DOTS, "x86-64-v3", "avx512vl and avx512vnni or avxvnni"),
        (INTEGER_DOTS, "aarch64:neoverse-v1", "avx512vl and avx512vnni or avxvnni"),
        (BFLOAT_DOTS, "cooperlake", None),
        (BFLOAT, "cooperlake", "amx-bf16"),
        (INTEGER, "sapphirerapids", None),
    ],
)
def test_a_refusal_names_what_is_lacking(instruction: MultiplyInstruction, cpu: str, lacking: str | None) -> None:
    machine = machine_of(Target.create("cpu", cpu))
    assert instruction.refusal(machine) == (None if lacking is None else Rejected(f"the CPU has no {lacking}"))
    assert instruction.exists_on(machine) == (lacking is None)


def test_amx_makes_most_products() -> None:
    rates = [each.rate for each in (BFLOAT_DOTS, INTEGER_DOTS, BFLOAT, INTEGER)]
    assert rates == [2, 4, 32, 64]


# Pixel 1 of three is touched by nothing; the second vector has three channels.
ROWS = {0: 0, 2: 20}
PIXELS, VECTORS, CHANNELS = 3, 2, LANES + 3
STEP = 10
AHEAD = 7
STEPS = [(1, 1), (7, 3), (8, 3), (12, 5), (5, 8)]


class Turned(Fma):
    """Keeps the sums of two pixels in each other's place."""

    @property
    def pixels(self) -> int:
        return 2

    def open(self, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return [*reversed(sums)]

    def close(self, accumulators: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return [*reversed(accumulators)]


def _write(
    count: int, unroll: int, asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]
) -> None:
    lhs, rhs, result = memories
    start = [asm.load(rhs, 0, LANES) for _ in range(PIXELS * VECTORS)]
    vectors = [(0, LANES), (LANES, CHANNELS - LANES)]
    totals = multiply_add(
        asm, Lhs(lhs, 1, ROWS), Rhs(rhs, LANES, STEP, vectors, Prefetch(3, AHEAD)), count, unroll, start
    )
    for index, total in enumerate(totals):
        asm.store(total, result, index * LANES, LANES)


def _kernel(count: int, unroll: int) -> SmallKernel:
    random = np.random.default_rng(count)
    lhs, rhs = (random.standard_normal(size).astype(np.float32) for size in (40, LANES + 12 * STEP))
    return SmallKernel(partial(_write, count, unroll), [lhs, rhs], PIXELS * VECTORS * LANES)


def _expected(small: SmallKernel, count: int) -> np.ndarray:
    lhs, rhs = (each.astype(np.float64) for each in small.inputs)
    totals = np.tile(rhs[:LANES], (PIXELS, VECTORS)).astype(np.float64)
    for step in range(count):
        row = rhs[LANES + step * STEP :][:CHANNELS]
        for pixel, distance in ROWS.items():
            totals[pixel, :CHANNELS] += lhs[1 + step + distance] * row
    return totals.ravel()


def test_accumulators_get_their_products() -> None:
    kernels = {f"k{count}_{unroll}": _kernel(count, unroll) for count, unroll in STEPS}
    results = run_kernels(kernels)
    for count, unroll in STEPS:
        name = f"k{count}_{unroll}"
        np.testing.assert_allclose(results[name], _expected(kernels[name], count), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("steps", "written"), list(zip(STEPS, [1, 1, 2, 4, 5], strict=True)))
def test_a_divisor_of_the_steps_is_written_out(steps: tuple[int, int], written: int) -> None:
    text = _kernel(*steps).kernel.executable(HOST, partial(_write, *steps))
    assert text.count("vector.fma") == written * len(ROWS) * VECTORS
    assert text.count("memref.prefetch") == -(-written * AHEAD // LANES)


def test_pixels_that_are_multiplied_at_once_share_accumulators() -> None:
    sums: list[Any] = [f"{pixel}{vector}" for pixel in range(PIXELS) for vector in "ab"]
    opened = open_tile(Turned(), sums, VECTORS)
    assert opened == ["1a", "1b", "0a", "0b", "2a", "2b", "2a", "2b"]
    opened[4:6] = ["beside", "nothing"]
    assert close_tile(Turned(), opened, VECTORS, len(sums)) == sums
    assert open_tile(FMA, sums, VECTORS) == sums

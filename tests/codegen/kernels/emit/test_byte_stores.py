"""Vectors that become bytes together are rounded and saturate as the definition says, wherever they are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.byte_stores import ByteAssembler, Part, stores_to
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.rounded_numbers import note, rounded
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.runtime.driver.signature import Array
from tests.codegen.kernels.small_kernels import SmallKernel, floats, run_kernels

LANES = 8
STEP, EMPTY = 0.75, 99
# Distances of vectors from where a tile begins, in vectors: side by side, in no order, and with gaps.
SHAPES = {"one": (0,), "three": (0, 1, 2), "five": (0, 1, 2, 3, 4), "mixed": (5, 0, 1, 3, 4, 2), "gaps": (0, 2, 4, 6)}
ZEROS = (-128, 0, 5, 127)
CASES = [(shape, ZEROS[index % len(ZEROS)], count) for index, (shape, count) in enumerate(product(SHAPES, (LANES, 3)))]
CASES += [("mixed", zero, LANES) for zero in ZEROS]
TILES = 32
_ENDS = [0.0, -0.0, -128.5, 127.5, -129.0, 128.0, 254.5, 255.5, -255.5, 32767.5, -32769.0, 40000.0, -3e9, -np.inf]
_RANDOM = np.random.default_rng(0)
TIES = np.arange(-260, 260, dtype=np.float32) + np.float32(0.5)
SIZE = TILES * LANES * 7
STEPS = np.resize(np.concatenate([np.array(_ENDS, np.float32), TIES]), SIZE)
REALS = (_RANDOM.standard_normal(SIZE) * 90).astype(np.float32)
# Some are too large for integers of 32 bits.
REALS[::31] = np.resize(np.array([3e12, -3e12, np.inf, -np.inf, 2.0**31], np.float32), REALS[::31].shape)

Compute = Callable[[Assembler, ir.Value], ir.Value]


def _times_step(asm: Assembler, value: ir.Value) -> ir.Value:
    """What a layer rounds: a multiple of the step."""
    operands = [rounded(asm, value), asm.splat(ir.FloatAttr.get(ir.F32Type.get(), STEP))]
    found = arith.mulf(*operands)
    note(asm, "arith.mulf", found, operands)
    return found


def _kernel(compute: Compute, given: Array, zero: int, places: Sequence[int], count: int) -> SmallKernel:
    size = LANES * (1 + max(places))

    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        assert isinstance(asm, ByteAssembler)
        asm.fill(asm.integer(EMPTY, 8), memories[2], 0, TILES * size)
        asm.quantise(memories[2], memories[1], STEP)

        def tile(start: Index) -> None:
            stores = stores_to(asm, memories[2])
            for place in places:
                value = compute(asm, asm.load(memories[0], asm.add(start, place * LANES), LANES))
                stores.add(Part(value, start, place * LANES, count))
            stores.finish()

        asm.repeat(0, TILES * size, size, tile)

    numbers = floats(STEP, zero, 1 / STEP)
    return SmallKernel(
        write, [given, numbers], TILES * size, dtype="i8", lanes=LANES, target=Target.create("cpu", "x86-64-v3")
    )


def _expected(numbers: Array, places: Sequence[int], count: int) -> Array:
    """Rounded numbers, zero point added, where a tile stores them."""
    size = LANES * (1 + max(places))
    tiles = np.full((TILES, size // LANES, LANES), EMPTY, np.int8)
    saturated = np.clip(np.rint(numbers[: TILES * size]), -128, 127).reshape(tiles.shape)
    tiles[:, places, :count] = saturated[:, places, :count]
    return tiles.reshape(-1)


@pytest.fixture(scope="module")
def results() -> dict[str, Array]:
    kernels = {
        f"known{index}": _kernel(_times_step, STEPS, zero, SHAPES[shape], count)
        for index, (shape, zero, count) in enumerate(CASES)
    }
    others = {shape: _kernel(lambda _, value: value, REALS, 5, SHAPES[shape], LANES) for shape in ("one", "mixed")}
    return run_kernels({**kernels, **others})


@pytest.mark.parametrize("index", range(len(CASES)))
def test_known_integers_are_stored_with_their_zero_point(index: int, results: dict[str, Array]) -> None:
    shape, zero, count = CASES[index]
    expected = _expected(np.rint(STEPS.astype(np.float64)) + zero, SHAPES[shape], count)
    np.testing.assert_array_equal(results[f"known{index}"], expected)


@pytest.mark.parametrize("shape", ["one", "mixed"])
def test_other_numbers_are_quantised(shape: str, results: dict[str, Array]) -> None:
    """With the zero point and rounded once, as an operation that rounds once computes it."""
    steps = REALS.astype(np.float64) * np.float64(np.float32(1 / STEP)) + 5
    np.testing.assert_array_equal(results[shape], _expected(steps.astype(np.float32), SHAPES[shape], LANES))

"""Kernels that read and write bf16: loads widen, stores round to nearest, whatever the CPU has instructions for."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.staging import interleaved
from sartor.codegen.mlir.iree_compiler import ir
from sartor.runtime.driver.signature import Array
from sartor.tuning.records.hardware import host
from tests.codegen.kernels.small_kernels import HOST, SmallKernel, floats, run_kernels

Memories = Sequence[ir.Value]
Group = tuple[Index, Index, Index]

AVX2 = Target.create("cpu", "x86-64-v3")
# Ties, what is too large for bf16, the smallest normal number, and what is no number.
SPECIAL = floats(1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1.3, 3.4e38, -3.4e38, 2.0**-126, 0.0, -0.0, np.inf, np.nan)
NUMBERS = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(21).astype(np.float32)])
NARROW = NUMBERS.astype(ml_dtypes.bfloat16)
SIZE = len(NUMBERS)


def _copied(asm: Assembler, memories: Memories, group: Group) -> None:
    """All elements through vectors."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.load(memories[0], start, asm.lanes), memories[-1], start, asm.lanes)


def _partly(asm: Assembler, memories: Memories, group: Group) -> None:
    """Zeros, then three elements from the third on, of which two are read."""
    zero = asm.load(memories[0], 0, asm.lanes, present=False)
    for start in range(0, SIZE, asm.lanes):
        asm.store(zero, memories[-1], start, asm.lanes)
    asm.store(asm.load(memories[0], 3, 2), memories[-1], 2, 3)


def _repeated(asm: Assembler, memories: Memories, group: Group) -> None:
    """The fourth element everywhere."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.broadcast(memories[0], 3), memories[-1], start, asm.lanes)


def _doubled(asm: Assembler, memories: Memories, group: Group) -> None:
    """Sums in f32, although both terms are narrow: one and a quarter of bf16's last place, twice."""
    value = asm.load(memories[0], 0, asm.lanes)
    total = asm.sum_of(asm.sum_of(value, value), asm.load(memories[1], 0, asm.lanes))
    for start in range(0, SIZE, asm.lanes):
        asm.store(total, memories[-1], start, asm.lanes)


def _as_stored(asm: Assembler, memories: Memories, group: Group) -> None:
    """Vectors of bf16 that are never widened."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.load_as_stored(memories[0], start, asm.lanes), memories[-1], start, asm.lanes)


def _interleaved(asm: Assembler, memories: Memories, group: Group) -> None:
    """Four vectors in turn, of which all but the last three numbers are stored."""
    vectors = [asm.load_as_stored(memories[0], number * asm.lanes, asm.lanes) for number in range(4)]
    asm.store_all(interleaved(vectors), memories[-1], 0, 4 * asm.lanes)
    asm.store_all(interleaved(vectors[:2]), memories[-1], 4 * asm.lanes, 2 * asm.lanes - 3)


def _kernels(target: Target, lanes: int) -> dict[str, SmallKernel]:
    def kernel(write: object, inputs: Sequence[Array], dtype: str, size: int = SIZE) -> SmallKernel:
        return SmallKernel(write, inputs, size, dtype=dtype, lanes=lanes, target=target)  # type: ignore[arg-type]

    plenty = np.arange(4 * lanes).astype(ml_dtypes.bfloat16)
    terms = [np.full(lanes, 1.0).astype(ml_dtypes.bfloat16), np.full(lanes, 2.0**-9).astype(ml_dtypes.bfloat16)]
    return {
        "widened": kernel(_copied, [NARROW], "f32"),
        "rounded": kernel(_copied, [NUMBERS], "bf16"),
        "narrow": kernel(_copied, [NARROW], "bf16"),
        "as_stored": kernel(_as_stored, [NARROW], "bf16"),
        "partly": kernel(_partly, [NARROW], "bf16"),
        "partly_rounded": kernel(_partly, [NUMBERS], "bf16"),
        "repeated": kernel(_repeated, [NARROW], "f32"),
        "doubled": kernel(_doubled, terms, "f32"),
        "interleaved": kernel(_interleaved, [plenty], "bf16", 6 * lanes),
    }


def _wide(array: Array) -> Array:
    return array.astype(np.float32)


def _partial(array: Array) -> Array:
    result = np.zeros(SIZE, np.float32)
    result[2:4] = _wide(array.astype(ml_dtypes.bfloat16))[3:5]
    return result


@pytest.mark.parametrize(("target", "lanes"), [(HOST, 4), (HOST, 16), (AVX2, 8)])
def test_memory_of_bf16_is_widened_and_rounded(target: Target, lanes: int) -> None:
    if target is AVX2 and not {"avx2", "fma"} <= set(host().features):
        pytest.skip("this CPU has no AVX2")
    results = {name: _wide(run_kernel) for name, run_kernel in run_kernels(_kernels(target, lanes)).items()}
    plenty = np.arange(4 * lanes, dtype=np.float32).reshape(4, lanes)
    twice = plenty[:2].T.ravel()[:-3]
    expected = {
        "widened": _wide(NARROW),
        "rounded": _wide(NARROW),
        "narrow": _wide(NARROW),
        "as_stored": _wide(NARROW),
        "partly": _partial(NARROW),
        "partly_rounded": _partial(NUMBERS),
        "repeated": np.full(SIZE, NARROW[3], np.float32),
        "doubled": np.full(SIZE, 2 + 2.0**-9, np.float32),
        "interleaved": np.concatenate([plenty.T.ravel(), twice]),
    }
    results["interleaved"] = results["interleaved"][: len(expected["interleaved"])]
    for name, each in expected.items():
        np.testing.assert_array_equal(results[name], each, err_msg=name)

"""Executed instructions are counted under emulation, and ranks are compared as Spearman did."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from benchmarks.emulation.__main__ import rank_correlation
from benchmarks.emulation.counter import InstructionCounter
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.errors import UsageError
from tests.emulated import emulator

EMULATOR = emulator()
HAS_COMPILER = shutil.which("cc") is not None


def test_ranks_and_not_numbers_are_correlated() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 100, 1000, 1e9]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # By hand: the ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4.
    assert rank_correlation([1, 2, 2, 9], [0, 7, 5, 8]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert rank_correlation([1, 1], [1, 2]) == 1


@pytest.mark.skipif(isinstance(EMULATOR, str) or not HAS_COMPILER, reason=f"{EMULATOR}, or there is no C compiler")
def test_twice_the_work_takes_twice_the_instructions(tmp_path: Path) -> None:
    """Loading the module and starting the program are not counted."""
    counter, target = InstructionCounter.built(tmp_path), Target.create("cpu", "aarch64:cortex-a76")
    counts = []
    for size in (1 << 16, 1 << 17):
        module, kind = tmp_path / f"{size}.vmfb", f"tensor<{size}xf32>"
        body = f"func.func @twice(%x: {kind}) -> {kind} {{\n  %y = arith.addf %x, %x : {kind}\n  return %y : {kind}\n}}"
        module.write_bytes(compile_module(body, target.flags))
        counts.append(counter.count(module, "twice", [TensorType((size,), "f32")]))
    assert counts[1] / counts[0] == pytest.approx(2, rel=0.2)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(os.environ, "SARTOR_AARCH64_RUNTIME", raising=False)
    with pytest.raises(UsageError, match=r"SARTOR_AARCH64_RUNTIME are needed"):
        InstructionCounter.built(tmp_path)

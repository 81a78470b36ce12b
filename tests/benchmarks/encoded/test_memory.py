"""The benchmark of memory: models whose weights lie inside or beside them, and what processes take."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.encoded import memory
from benchmarks.encoded.memory import Usage, write_model
from sartor.runtime.reference import OnnxRuntimeReference

_MIB = 1 << 20


def test_models_are_the_same_in_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_WIDTH", 512)
    monkeypatch.setattr(memory, "_INNER", 1024)
    outputs = []
    for form in ("inside", "beside"):
        folder = tmp_path / form
        folder.mkdir()
        path, size = write_model(folder, 1, is_beside=form == "beside")
        assert _MIB <= size < 2 * _MIB
        assert (path.stat().st_size > size) == (form == "inside")
        outputs += OnnxRuntimeReference(path)({"x": np.ones((1, 512), np.float32)})
    inside, beside = outputs
    np.testing.assert_array_equal(inside, beside)


def test_memory_of_a_process_is_seen() -> None:
    usage, before = Usage(), Usage()
    before.see(os.getpid())
    block = np.ones(64 * _MIB, np.uint8)
    usage.see(os.getpid())
    del block
    usage.see(os.getpid())
    assert before.allocated + 60 < usage.allocated < before.allocated + 100
    assert usage.alone[str(os.getpid())] >= usage.at_most[str(os.getpid())] > 64

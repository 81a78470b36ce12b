"""How weights are laid out for measuring."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, Transpose
from sartor.runtime.driver.device import open_device
from sartor.tuning.measuring import case_data
from sartor.tuning.measuring.benchmark_case import BenchmarkCase

TENSOR = TensorType((64, 32), "f32")
CASE = BenchmarkCase("task", (), (TENSOR,), (), ())
PLAIN, TURNED = (Packing(),), (Packing((Transpose((1, 0)),)),)


def test_weights_are_copied_until_no_cache_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_COLD_BYTES", 3 * TENSOR.bytes)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    first, again = data.copies(PLAIN, device), data.copies(PLAIN, device)
    assert len(first) == 3
    assert len({each.to_host().ctypes.data for copies in (first, again) for (each,) in copies}) == 6
    for (plain,), (turned,) in zip(first, data.copies(TURNED, device), strict=True):
        np.testing.assert_array_equal(turned.to_host(), plain.to_host().T)


def test_variants_share_what_no_cache_keeps_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_COLD_BYTES", TENSOR.bytes)
    monkeypatch.setattr(case_data, "_LARGE_BYTES", TENSOR.bytes - 1)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    assert data.copies(PLAIN, device)[0][0] is data.copies(PLAIN, device)[0][0]
    assert data.copies(TURNED, device)[0][0] is not data.copies(PLAIN, device)[0][0]

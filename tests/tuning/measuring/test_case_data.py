"""How weights are laid out for measuring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Narrow, Packing, Transpose
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.ir.variants.traits import Traits
from sartor.runtime.driver.device import open_device
from sartor.tuning.measuring import case_data
from sartor.tuning.measuring.benchmark_case import BenchmarkCase

TENSOR = TensorType((64, 32), "f32")
CASE = BenchmarkCase("task", (), (TENSOR,), (), ())
PLAIN, TURNED = (Packing(),), (Packing((Transpose((1, 0)),)),)


def test_weights_are_copied_until_no_cache_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_COLD_BYTES", TENSOR.bytes)
    monkeypatch.setattr(case_data, "last_level_cache", lambda: 2 * TENSOR.bytes)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    first, again = data.copies(PLAIN, device), data.copies(PLAIN, device)
    assert len(first) == 3
    assert len({each.to_host().ctypes.data for copies in (first, again) for (each,) in copies}) == 6
    for (plain,), (turned,) in zip(first, data.copies(TURNED, device), strict=True):
        np.testing.assert_array_equal(turned.to_host(), plain.to_host().T)


@pytest.mark.parametrize("cache", [32 << 20, 48 << 20])
def test_large_weights_are_read_from_memory_whatever_the_cache(cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotation over the copies exceeds the last-level cache: else a variant's time depends on its place."""
    monkeypatch.setattr(case_data, "last_level_cache", lambda: cache)
    device = open_device("cpu", 1)
    for size in (cache // 6, cache, 2 * cache):
        tensor = TensorType((size // 4,), "f32")
        data = case_data.CaseData(BenchmarkCase("task", (), (tensor,), (), ()), [np.zeros(tensor.shape, np.float32)])
        assert len(data.copies(PLAIN, device)) * size >= 1.5 * cache - 1


def test_variants_share_what_no_cache_keeps_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_evicting_bytes", lambda: TENSOR.bytes)
    monkeypatch.setattr(case_data, "_LARGE_BYTES", TENSOR.bytes - 1)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    assert data.copies(PLAIN, device)[0][0] is data.copies(PLAIN, device)[0][0]
    assert data.copies(TURNED, device)[0][0] is not data.copies(PLAIN, device)[0][0]


def test_weights_have_numbers_of_the_type_that_a_variant_stores_them_in() -> None:
    schema = Schema.plain(TensorType((1,), "f32"), "cpu")
    code = Implementation("", (schema,), (schema,), ())
    plain, *narrow = (
        Variant(name or "plain", "cpu", "f32", code, Traits(weights=name)) for name in (None, "f16", "bf16")
    )
    for each in narrow:
        (weight,) = case_data.CaseData(replace(CASE, variants=(plain, each))).weights
        assert Narrow("f16").is_exact(weight)
        assert Narrow("bf16").is_exact(weight)
        assert np.count_nonzero(weight) > 0.9 * weight.size
    (weight,) = case_data.CaseData(replace(CASE, variants=(plain,))).weights
    assert not Narrow("f16").is_exact(weight)


def test_weights_of_a_layer_are_left_as_they_are() -> None:
    schema = Schema.plain(TensorType((1,), "f32"), "cpu")
    narrow = Variant("narrow", "cpu", "f32", Implementation("", (schema,), (schema,), ()), Traits(weights="f16"))
    given = np.full(TENSOR.shape, 1 / 3, np.float32)
    (weight,) = case_data.CaseData(replace(CASE, variants=(narrow,)), [given]).weights
    assert np.array_equal(weight, given)

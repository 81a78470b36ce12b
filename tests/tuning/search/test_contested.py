"""Which measurements are repeated: those that other programs disturbed and that decide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest

from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.search.doubts.contested import contested


@dataclass(frozen=True)
class _Variant:
    descriptor: str


@dataclass(frozen=True)
class _Case:
    key: str
    variants: tuple[_Variant, ...]


_CASE = cast(BenchmarkCase, _Case("t", tuple(map(_Variant, ("stock", "fast", "near", "slow")))))


def _measured(**loads: float) -> dict[str, dict[str, Measurement]]:
    seconds = {"stock": 5.0, "fast": 1.0, "near": 1.2, "slow": 4.0}
    return {
        "t": {
            name: Measurement(
                MeasurementKey("t", name, "source", "hardware", 1, "runtime", "backend"),
                Status.OK,
                (time,),
                (5.0,) if name != "stock" else (),
                foreign_load=loads.get(name, 0.0),
            )
            for name, time in seconds.items()
        }
    }


@pytest.mark.parametrize(("disturbed", "repeated"), [("fast", True), ("near", True), ("slow", False), ("stock", False)])
def test_what_decides_is_repeated(disturbed: str, repeated: bool) -> None:
    found = contested([_CASE], _measured(**{disturbed: 0.7}))
    names = [[variant.descriptor for variant in case.variants] for case in found]
    assert names == ([["stock", "fast", "near"]] if repeated else [])


def test_a_reshape_decides_nothing() -> None:
    """It takes no time whatever others do, and they read another layout."""
    known = _measured(fast=0.7)["t"]
    known["slow"] = replace(known["slow"], samples=(1e-7,), baseline_samples=())
    (found,) = contested([_CASE], {"t": known})
    assert [variant.descriptor for variant in found.variants] == ["stock", "fast", "near", "slow"]


def test_a_task_without_times_is_not_repeated() -> None:
    assert contested([_CASE], {}) == []

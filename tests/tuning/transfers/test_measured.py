"""Times of transfers that are measured once and stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sartor.codegen.ir.target import Target
from sartor.tuning.store.store import Store
from sartor.tuning.transfers import measured
from sartor.tuning.workers.pool import WorkerPool

TARGET = Target.joined([Target.create("cpu"), Target.create("vulkan")])


def test_transfers_beside_other_programs_are_stored_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[int]] = []

    def times(_pool: object, _function: object, job: dict[str, Any], *_: object, **_more: object) -> dict[int, Any]:
        asked.append(job["sizes"])
        return dict.fromkeys(job["sizes"], (1e-3, 2e-3))

    monkeypatch.setattr(measured, "call", times)
    pool = WorkerPool(1)
    loads = iter([9.0, 0.7, 9.0, 0.0])
    monkeypatch.setattr(pool, "take_others", lambda: next(loads))
    with Store.open(tmp_path / "t.db") as store:
        found = measured.measured_transfers(store, pool, TARGET)
        assert measured.measured_transfers(store, pool, TARGET) == found
        load = {
            (measurement.key.variant.rpartition(" to ")[0], measurement.foreign_load)
            for measurement in store.measurements()
        }
    assert len(asked) == 2, "times are stored"
    assert load == {("cpu", 0.7), ("vulkan", 0.0)}

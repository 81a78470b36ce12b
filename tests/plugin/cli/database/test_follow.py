"""Following a database while another process measures."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.cli.database.follow import follow
from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.store import Store


def _measurement(variant: str, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("0123456789abcdef", variant, "source", "machine", 1, "versions", "cpu:host/0")
    return Measurement(key, status, (2e-3,), (5e-3,)) if status is Status.OK else Measurement(key, status)


def test_what_is_measured_meanwhile_is_printed_once(tmp_path: Path) -> None:
    path, said = tmp_path / "tuning.db", list[str]()
    batches = [[("new", Status.OK)], [], [("\x1b[2Jbad", Status.CRASHED)], []]
    with Store.open_to_write(path) as store:
        store.put(_measurement("old"))

        def wait(_: float) -> None:
            store.put_many([_measurement(*each) for each in batches.pop(0)])

        follow(path, said.append, wait, looks=4)
    assert [line.split("  ", 1)[1].split() for line in said] == [
        ["0123456789abcdef", "2.000", "ms,", "2.50", "times", "stock", "new"],
        ["0123456789abcdef", "crashed", "\\x1b[2Jbad"],
    ]


def test_clocks_that_are_ahead_or_behind_hide_nothing(tmp_path: Path) -> None:
    path, said, now = tmp_path / "tuning.db", list[str](), time.time()
    batches = [[("ahead", now + 3600)], [("new", now), ("behind", now - 5)], [("new", now + 1)], []]
    with Store.open_to_write(path) as store:
        store.put(replace(_measurement("imported"), created=now + 3600))

        def wait(_: float) -> None:
            store.put_many([replace(_measurement(name), created=created) for name, created in batches.pop(0)])

        follow(path, said.append, wait, looks=4)
    assert [line.split()[-1] for line in said] == ["ahead", "behind", "new", "new"]


def test_a_copy_cannot_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "open_to_read", lambda _: Store.in_memory())
    with pytest.raises(UsageError, match="cannot be followed"):
        follow(tmp_path / "tuning.db", looks=1)

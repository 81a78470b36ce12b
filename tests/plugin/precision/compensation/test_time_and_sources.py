"""Compensation ends within a time budget, all or nothing, and what is stored about it knows its sources."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sartor.precision.compensation import compensated_weights
from sartor.precision.compensation.compensated_weights import OutOfTimeError, identity, with_compensation


def test_it_is_given_up_once_it_is_seen_to_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = compensated_weights._Pace(total=10.0, end=120.0)
    now[0] = 103.9
    pace.did(2.0)
    now[0] = 108.1
    with pytest.raises(OutOfTimeError):
        pace.did(2.0)
    with pytest.raises(OutOfTimeError):
        compensated_weights._Pace(total=1.0, end=now[0])
    # What has no work is done.
    compensated_weights._Pace(total=0.0, end=now[0])


def test_no_weight_is_compensated_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    given: list[Any] = []

    def late(*arguments: Any) -> None:
        given.extend(arguments)
        raise OutOfTimeError

    monkeypatch.setattr(compensated_weights, "compensated_model", late)

    imported: Any = object()
    calibration: Any = SimpleNamespace(samples="samples")
    policy, pool = cast(Any, "policy"), cast(Any, "pool")
    with caplog.at_level(logging.WARNING):
        found = with_compensation(imported, calibration, policy, pool, end=7.0)
    assert found == (imported, calibration)
    assert given[-1] == 7.0
    assert "--time-budget" in caplog.text


def test_what_is_stored_about_it_knows_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity("") == ""
    before = identity("samples")
    assert before == identity("samples") != identity("others")
    modules: list[str] = []

    def other(*names: str) -> str:
        modules.extend(names)
        return "changed"

    monkeypatch.setattr(compensated_weights, "source_digest", other)
    assert identity("samples") != before
    assert modules == [compensated_weights.__name__]

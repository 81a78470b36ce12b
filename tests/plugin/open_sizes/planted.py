"""A fault at one of the sizes at which a file is checked."""

from __future__ import annotations

import pytest

from sartor.profiling.network_runner import NetRunner
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status


def plant_wrong_outputs(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let a check of a network find outputs that are wrong by a half; checks are counted from 1."""
    checked, real = list[NetRunner](), NetRunner.verify

    def planted(self: NetRunner, build: object) -> NetRun:
        checked.append(self)
        run = real(self, build)  # type: ignore[arg-type]
        return NetRun(Status.OK, run.samples, 0.5) if len(checked) == number else run

    monkeypatch.setattr(NetRunner, "verify", planted)

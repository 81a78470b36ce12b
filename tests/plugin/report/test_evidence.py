"""Which of the stored measurements a report shows: those of the machine that the plan was made from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.report.evidence import read_evidence
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from tests.plugin.report.made import FAST, SLOW, choice, plan_of

ELSEWHERE = "a board [0123456789ab]"
PLAN = replace(plan_of(choice("a")), target="cpu:x86-64-v3")


def measured(variant: str, hardware: str, created: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", variant, "source", hardware, 1, runtime_key(), "cpu:x86-64-v3/0123abcd")
    return Measurement(key, status, (1e-3,) if status is Status.OK else (), created=created)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        # Other machines measured for the plan, and this one only something else, later.
        ([measured(SLOW, host().key, 9.0), measured(FAST, ELSEWHERE, 1.0)], ELSEWHERE),
        ([measured(FAST, host().key, 9.0, Status.CRASHED), measured(FAST, ELSEWHERE, 1.0)], ELSEWHERE),
        ([measured(FAST, host().key, 1.0), measured(FAST, ELSEWHERE, 9.0)], host().key),
        ([measured(FAST, "another", 1.0), measured(FAST, ELSEWHERE, 9.0)], ELSEWHERE),
    ],
)
def test_measurements_of_the_machine_that_the_plan_is_from_are_shown(stored: list[Measurement], shown: str) -> None:
    with Store.in_memory() as store:
        store.put_many(stored)
        assert read_evidence(store, PLAN, ["task"]).hardware == shown

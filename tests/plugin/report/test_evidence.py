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


def test_a_gpus_measurements_have_one_thread_whatever_the_plan_has() -> None:
    plan = replace(plan_of(choice("a")), target="cuda:sm_80", threads=16)
    found = replace(measured(FAST, ELSEWHERE, 1.0).key, backend="cuda:sm_80/0123abcd")
    of_a_cpu = replace(found, backend="cpu:x86-64-v3/0123abcd", hardware="another")
    with Store.in_memory() as store:
        store.put_many(Measurement(each, Status.OK, (1e-3,)) for each in (found, of_a_cpu))
        assert read_evidence(store, plan, ["task"]).hardware == ELSEWHERE


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

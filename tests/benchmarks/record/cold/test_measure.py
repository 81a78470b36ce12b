"""What is recorded of first inferences, on a network that is compiled in seconds."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

import sartor
from benchmarks import cold_plans
from benchmarks.cold_plans import ColdPlan
from benchmarks.record.cold import measure
from benchmarks.record.results import Entry
from benchmarks.record.task import Effort, Task
from benchmarks.zoo import write
from sartor.errors import InfeasibleError


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """LeNet-5, whose plans are all of stock code; there is none with filters in 8 bits."""

    def settings(plan: ColdPlan, threads: int, database: Path) -> sartor.CompileConfig:
        if plan is ColdPlan.WEIGHTS:
            raise InfeasibleError("no plan keeps the bound")
        return sartor.CompileConfig(threads=threads, time_budget=1.0, database=database)

    monkeypatch.setattr(ColdPlan, "settings", settings)
    monkeypatch.setattr(measure, "_ROUNDS", 2)
    return Task(write("lenet5", tmp_path), 1, tmp_path, Effort(1.0, 1))


def test_every_plan_is_recorded_in_both_states_and_those_that_fail_are_named(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "COLD_PEERS", ("iree",))
    entries, failures = measure.measure_first(task)
    who = {"latency", "latency + P", "K", "KP", "both", "iree"}
    assert {*entries} == {measure.entry_name(each, state) for each in who for state in ("in memory", "dropped")}
    assert failures == {"KCP": "no plan keeps the bound"}
    assert all(len(entry.samples[0]) == 2 for entry in entries.values())
    assert 0 < entries["KP, dropped"].error < 1e-3
    _check_facts(entries["latency + P, in memory"])


def test_plans_are_made_anew_and_compared_without_peers(task: Task) -> None:
    old = cold_plans.plan_file("lenet5", task.directory / "cold", ColdPlan.LATENCY)
    old.parent.mkdir()
    old.write_bytes(b"of another commit")
    entries, failures = measure.measure_cold(task)
    assert {*entries} == {f"{who}, {state}" for who in ("latency + P", "KP") for state in ("in memory", "dropped")}
    assert not failures


def test_what_a_wrong_plan_computes_is_noticed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "make_plan", _made_wrong)
    entries, _ = measure.measure_cold(task)
    assert entries["latency + P, dropped"].is_right
    assert not entries["KP, dropped"].is_right


def _made_wrong(network: str, directory: Path, plan: ColdPlan, threads: int) -> None:
    """The plan for the first inference is of other weights."""
    if plan is ColdPlan.KERNELS:
        model = onnx.load(directory / f"{network}.onnx")
        first = numpy_helper.to_array(model.graph.initializer[0])
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(first * 2, model.graph.initializer[0].name))
        onnx.save(model, directory / "other.onnx")
        output = cold_plans.plan_file(network, directory, plan)
        sartor.compile(directory / "other.onnx", plan.settings(threads, directory / "other.db"), output=output)
    else:
        cold_plans.make_plan(network, directory, plan, threads)


def _check_facts(entry: Entry) -> None:
    facts = {name: float(value) for name, value in entry.facts.items()}
    assert entry.seconds < facts["process seconds"]
    assert 0 < facts["inference 1"] < entry.seconds
    assert facts["module MiB"] > 0
    assert facts["later inference"] <= facts["slowest between"]

"""First inferences: what is recorded of them, and what tables show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

import sartor
from benchmarks import cold_plans
from benchmarks.cold_plans import ColdPlan
from benchmarks.record.cold import measure
from benchmarks.record.cold.tables import cold_table, first_table
from benchmarks.record.results import Entry, Result
from benchmarks.record.task import Effort, Task
from benchmarks.zoo import write
from sartor.errors import InfeasibleError
from tests.benchmarks.record.made_results import MADE, entry


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


PLAN, COLD = "latency + P", "KP"
ROUNDS = 8


def _both(who: str, dropped: Entry, cached: Entry) -> dict[str, Entry]:
    return {f"{who}, dropped": dropped, f"{who}, in memory": cached}


def _varying(least: float) -> Entry:
    """Rounds of which each is slower than the one before."""
    return entry([least + step for step in range(ROUNDS)])


def test_a_plan_is_faster_if_it_is_in_nearly_all_rounds(tmp_path: Path) -> None:
    slow, fast = _varying(10.0), _varying(9.9)
    mixed = entry([0.1, *fast_samples(ROUNDS - 1)])
    for name, dropped in (("surely", fast), ("by chance", mixed)):
        entries = _both(PLAN, slow, replace(slow, facts={"later inference": 0.009})) | _both(COLD, dropped, slow)
        Result("cold", name, 1, MADE, entries).save(tmp_path)
    table = cold_table(tmp_path)
    assert "Files dropped: the plan for the first inference is faster for 1 of 2 networks and slower for 0;" in table
    assert "Files in memory: the plan for the first inference is faster for 0 of 2 networks and slower for 0;" in table
    assert "| surely | - | - | 13.5 | 13.4 | 0.99 | 13.5 | 13.5 | 1.00 | 1.50 | 0123456789 |" in table


def test_a_wrong_plan_is_faster_than_none(tmp_path: Path) -> None:
    slow, wrong = _varying(10.0), entry([1.0] * ROUNDS, error=0.1)
    Result("cold", "net", 1, MADE, _both(PLAN, slow, slow) | _both(COLD, wrong, wrong)).save(tmp_path)
    Result("first", "net", 1, MADE, _both(COLD, wrong, _with_phases(wrong))).save(tmp_path)
    table = cold_table(tmp_path)
    assert "| 13.5 | 1.00 (wrong) | - |" in table
    assert "faster for 0 of 1 networks and slower for 0;" in table
    assert "| KP | 1.00 (1.00) (wrong) |" in first_table(tmp_path)


def _with_phases(found: Entry) -> Entry:
    return replace(found, facts={"inference 1": 0.001})


def fast_samples(count: int) -> list[float]:
    """Times of which half are above those of the rounds beside them."""
    return [9.0 + step if step % 2 else 12.0 + step for step in range(count)]


def test_first_inferences_are_shown_with_their_phases(tmp_path: Path) -> None:
    facts = {"processor seconds": 0.004, "inference 1": 0.003, "inference 2": 0.0025, "inference 3": 0.002}
    facts |= {"slowest between": 0.0028, "later inference": 0.0019, "process seconds": 0.16, "module MiB": 9.25}
    entries = _both(PLAN, entry([6.0, 5.0, 7.0], **facts), entry([4.0, 4.5, 3.5], **facts))
    entries |= _both("iree", entry([20.0], **{"process seconds": 0.02}), entry([19.0], **{"process seconds": 0.019}))
    Result("first", "net", 1, MADE, entries, {"KC": "no plan\nis right"}).save(tmp_path)
    table = first_table(tmp_path)
    assert "| latency + P | 4.00 (3.50) | 6.00 (5.00) | 4.00 | 2.50 | 2.00 | 2.80 | 1.90 | 160 | 9.25 | - |" in table
    assert "| iree | - | - | - | - | - | - | - | 19.0 | - | - |" in table
    assert "- net: KC failed: no plan is right" in table


def test_nothing_is_said_to_be_recorded_where_there_is_nothing(tmp_path: Path) -> None:
    assert cold_table(tmp_path) == first_table(tmp_path) == "Nothing is recorded yet."

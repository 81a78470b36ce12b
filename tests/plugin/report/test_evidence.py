"""What reports show: measurements of one machine, why candidates lost, how plans differ, traces and graphs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from sartor.errors import UsageError
from sartor.report.candidates import Candidate, candidates_of
from sartor.report.difference import compare_plans
from sartor.report.evidence import read_evidence
from sartor.report.model_explorer import graph_collections, node_data
from sartor.report.trace import Slice, trace
from sartor.runtime.benchmark import Samples, time_interleaved
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from sartor.tuning.store.tasks import TaskResult, task_results
from tests.plugin.report.made import FAST, SLOW, WRONG, adapt, choice, measurement, plan_of, result, subject

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


_OTHER = "cpu:f32/conv2d.tiled"


def _by_name(found: tuple[Candidate, ...]) -> dict[str, Candidate]:
    return {each.variant: each for each in found}


def _with(*more: tuple[str, tuple[float, ...]]) -> TaskResult:
    listed = [*result().variants, *(measurement(name, times) for name, times in more)]
    return next(iter(task_results(listed)))


def test_the_fastest_comes_first_then_failures() -> None:
    found = candidates_of(result(), FAST)
    assert [each.variant for each in found] == [FAST, SLOW, WRONG]
    assert [each.chosen for each in found] == [True, False, False]
    assert [each.status for each in found] == ["ok", "ok", "wrong_result"]
    assert [each.reason for each in found] == [
        "",
        "3.72 times as slow",
        "is wrong: off by 0.5",
    ]


def test_times_have_their_spread() -> None:
    chosen = candidates_of(result(), FAST)[0]
    assert chosen.seconds == pytest.approx(1.075e-3)
    assert chosen.spread == pytest.approx((1e-3, 1.075e-3, 1.15e-3, 1.225e-3, 1.3e-3))
    assert chosen.samples == 4


def test_times_are_scaled_to_candidate_0_of_the_same_run() -> None:
    listed = [*result().variants, measurement(_OTHER, (8e-3,) * 4, stock=8e-3)]
    other = _by_name(candidates_of(next(iter(task_results(listed))), FAST))[_OTHER]
    assert other.seconds == pytest.approx(4e-3)
    assert other.spread == pytest.approx((4e-3,) * 5)


@pytest.mark.parametrize(
    ("name", "seconds", "reason"),
    [
        (_OTHER, 0.5e-3, "0.575 ms faster alone, but the conversions on its edges"),
        (_OTHER, 1.076e-3, "as fast alone; the conversions on its edges"),
        ("cpu:bf16/conv2d.tiled", 0.5e-3, "computes in bf16, which the allowed error"),
        ("vulkan:f32/conv2d.tiled", 2.15e-3, "2.00 times as slow on vulkan, apart from transfers"),
    ],
)
def test_faster_ones_lost_for_a_reason(name: str, seconds: float, reason: str) -> None:
    found = _by_name(candidates_of(_with((name, (seconds,) * 4)), FAST))
    assert found[name].reason.startswith(reason)


def test_without_a_choice_the_whole_model_was_faster() -> None:
    assert all("whole model" in candidate.reason for candidate in candidates_of(result(), None) if candidate.seconds)


def test_what_is_disturbed_says_so() -> None:
    listed = [*result().variants, measurement(_OTHER, (), Status.KILLED)]
    found = _by_name(candidates_of(next(iter(task_results(listed))), FAST))
    assert found[_OTHER].reason == "was disturbed"


def test_equal_plans_do_not_differ() -> None:
    plan = plan_of(choice("a"), choice("b"), adapts=[adapt("a", "b")])
    found = compare_plans(plan, plan)
    assert [each.nodes for each in found] == [("node of a",), ("node of b",)]
    assert not any(each.differs for each in found)
    assert [each.cost for each in found] == [0, 0]


def test_another_variant_costs_its_time_and_the_conversions_that_it_needs() -> None:
    first = plan_of(choice("a"), choice("b"), choice("c"))
    second = plan_of(
        choice("a"), choice("b", SLOW, 4e-3), choice("c"), adapts=[adapt("a", "b", 5e-4), adapt("c", "output:y", 2e-4)]
    )
    found = compare_plans(first, second)
    assert [each.differs for each in found] == [False, True, False]
    assert [each.cost for each in found] == pytest.approx([0, 3.5e-3, 2e-4])
    assert (found[1].first.variants, found[1].second.variants) == ((FAST,), (SLOW,))


def test_layers_that_divide_the_same_nodes_in_another_way_are_compared_together() -> None:
    fused = plan_of(choice("ab", nodes=("a", "b", "relu")), choice("c", nodes=("c",)))
    split = plan_of(
        choice("a", seconds=7e-4, nodes=("a",)), choice("b", nodes=("b", "relu")), choice("c", nodes=("c",))
    )
    together, alone = compare_plans(fused, split)
    assert together.nodes == ("a", "b", "relu")
    assert (together.first.layers, together.second.layers) == (("ab",), ("a", "b"))
    assert together.differs
    assert together.cost == pytest.approx(7e-4)
    assert not alone.differs


def test_what_only_one_of_them_computes_has_no_cost() -> None:
    found = compare_plans(plan_of(choice("a")), plan_of(choice("a"), choice("new")))
    assert [each.cost for each in found] == [0, None]
    assert found[1].first.layers == ()


def test_times_in_the_network_count_if_both_have_them() -> None:
    timed = plan_of(replace(choice("a"), in_place=2e-3))
    slower = plan_of(replace(choice("a", SLOW), in_place=5e-3))
    assert compare_plans(timed, slower)[0].cost == pytest.approx(3e-3)
    assert compare_plans(timed, plan_of(choice("a", SLOW, 1.5e-3)))[0].cost == pytest.approx(5e-4)


def test_a_reshape_takes_no_time_in_the_network() -> None:
    reshaped = replace(choice("b"), seconds=1e-7, in_place=None)
    timed = plan_of(replace(choice("a"), in_place=2e-3), reshaped)
    slower = plan_of(replace(choice("a", SLOW), in_place=5e-3), reshaped)
    assert compare_plans(timed, slower)[0].cost == pytest.approx(3e-3)


def test_inferences_are_where_they_were_and_layers_one_after_another() -> None:
    samples = {"sartor": Samples((0.5, 0.25), (10.0, 11.0)), "onnxruntime": Samples((1.0, 2.0), (9.0, 12.0))}
    made = trace(samples, [Slice("first", 0.125, {"routine": "x"}), Slice("second", 0.25, {})])
    json.dumps(made, allow_nan=False)
    complete = [each for each in made["traceEvents"] if each["ph"] == "X"]
    assert [(each["pid"], each["ts"], each["dur"]) for each in complete] == [
        (1, 1e6, 5e5),
        (1, 2e6, 2.5e5),
        (2, 0.0, 1e6),
        (2, 3e6, 2e6),
        (3, 0.0, 1.25e5),
        (3, 1.25e5, 2.5e5),
    ]
    names = {each["pid"]: each["args"]["name"] for each in made["traceEvents"] if each["ph"] == "M"}
    assert names == {1: "sartor", 2: "onnxruntime", 3: "layers of one inference, by their mean times"}


def test_samples_tell_when_they_began() -> None:
    ticks = iter(range(1000))
    found = time_interleaved({"a": lambda: None}, min_rounds=3, min_seconds=0, clock=lambda: float(next(ticks)))
    assert found["a"].seconds == (1.0, 1.0, 1.0)
    assert len(found["a"].begins) == 3
    assert all(first + 1 < second for first, second in itertools.pairwise(found["a"].begins))


def test_model_explorer_gets_nodes_edges_and_times() -> None:
    (collection,) = graph_collections(subject(prefix="encoder/block"))
    (graph,) = collection["graphs"]
    nodes = {each["id"]: each for each in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) == 5
    assert [each["sourceNodeId"] for each in nodes["layer 0"]["incomingEdges"]] == ["input 0"]
    assert [each["sourceNodeId"] for each in nodes["output 0"]["incomingEdges"]] == ["layer 2"]
    assert (nodes["layer 1"]["namespace"], nodes["layer 1"]["label"]) == ("encoder", "block 1")
    (data,) = node_data(subject()).values()
    assert {name: each["value"] for name, each in data["results"].items()} == pytest.approx(
        {"layer 0": 1.2, "layer 1": 1.21, "layer 2": 1.22}
    )
    assert data["results"].keys() <= nodes.keys()


def test_without_a_recorded_network_there_is_no_graph() -> None:
    with pytest.raises(UsageError, match="did not record its network"):
        graph_collections(replace(subject(), network=None))

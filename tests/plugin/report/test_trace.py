"""Traces for Perfetto, and graphs for Model Explorer."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from sartor.errors import UsageError
from sartor.report.model_explorer import graph_collections, node_data
from sartor.report.trace import Slice, trace
from sartor.runtime.benchmark import Samples, time_interleaved
from tests.plugin.report.made import subject


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

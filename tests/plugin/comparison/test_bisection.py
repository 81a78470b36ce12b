"""The search for the first layer beyond a bound, on graphs whose errors are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.comparison.bisection import AT_ONCE, Bisection, bisect

BOUND = 0.5


class Network:
    """Answers with given errors, and remembers what was asked."""

    def __init__(self, graph: nx.DiGraph, errors: Mapping[str, float]) -> None:
        self._graph = graph
        self._errors = errors
        self.asked: list[str] = []

    def __call__(self, names: Sequence[str]) -> dict[str, float]:
        assert 0 < len(names) <= AT_ONCE
        self.asked += names
        assert len(set(self.asked)) == len(self.asked)
        return {name: self._errors[name] for name in names}

    def search(self) -> Bisection:
        return bisect(self._graph, self, BOUND)


def chain(count: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    nx.add_path(graph, [f"n{index}" for index in range(count)])
    return graph


def wrong_from(graph: nx.DiGraph, *culprits: str) -> dict[str, float]:
    """Errors where everything after a wrong layer is wrong."""
    reached = {*culprits, *(name for culprit in culprits for name in nx.descendants(graph, culprit))}
    return {name: 1.0 if name in reached else 0.0 for name in graph}


@pytest.mark.parametrize("culprit", range(0, 200, 7))
def test_a_chain_takes_as_many_looks_as_a_search_by_bisection(culprit: int) -> None:
    graph = chain(200)
    network = Network(graph, wrong_from(graph, f"n{culprit}"))
    found = network.search()
    assert found.first == f"n{culprit}"
    assert found.inputs == ({} if culprit == 0 else {f"n{culprit - 1}": 0.0})
    assert found.rounds <= 4
    assert list(found.errors) == sorted(network.asked, key=lambda name: int(name[1:]))


def test_where_the_end_is_right_nothing_more_is_looked_at() -> None:
    graph = chain(100)
    network = Network(graph, wrong_from(graph))
    found = network.search()
    assert (found.first, found.rounds, len(network.asked)) == (None, 1, AT_ONCE)


def test_every_end_of_the_network_is_looked_at() -> None:
    graph = nx.DiGraph([("a", name) for name in ("b", "c", "d")])
    assert bisect(graph, Network(graph, wrong_from(graph, "c")), BOUND, at_once=1).first == "c"


def test_the_wrong_branch_is_followed() -> None:
    graph = nx.DiGraph()
    left, right = ([f"{side}{index}" for index in range(20)] for side in ("l", "r"))
    nx.add_path(graph, ["start", *left, "end"])
    nx.add_path(graph, ["start", *right, "end"])
    found = Network(graph, wrong_from(graph, "r13")).search()
    assert (found.first, found.inputs) == ("r13", {"r12": 0.0})


def test_what_is_wrong_from_the_start_reads_nothing() -> None:
    found = Network(chain(3), {"n0": 1.0, "n1": 1.0, "n2": 1.0}).search()
    assert (found.first, found.inputs) == ("n0", {})


def test_an_error_that_shrinks_again_does_not_hide_what_is_right_before() -> None:
    graph = chain(40)
    errors = {name: 1.0 if index >= 30 or 10 <= index < 20 else 0.0 for index, name in enumerate(graph)}
    found = Network(graph, errors).search()
    assert found.first in ("n10", "n30")
    assert set(found.inputs.values()) == {0.0}


def test_infinite_errors_are_beyond_any_bound() -> None:
    graph = chain(10)
    errors = wrong_from(graph, "n4")
    assert (
        Network(graph, {name: error * float("1e999") if error else 0.0 for name, error in errors.items()})
        .search()
        .first
        == "n4"
    )


@st.composite
def networks(draw: st.DrawFn) -> tuple[nx.DiGraph, dict[str, float]]:
    """Layers in order, each reading some before it, with any errors."""
    graph = nx.DiGraph()
    for index in range(draw(st.integers(1, 25))):
        graph.add_node(f"n{index}")
        if index:
            graph.add_edges_from(
                (f"n{each}", f"n{index}") for each in draw(st.sets(st.integers(0, index - 1), max_size=3))
            )
    return graph, {name: draw(st.sampled_from([0.0, 1.0])) for name in graph}


@settings(max_examples=200, deadline=None)
@given(networks())
def test_what_is_found_is_wrong_and_reads_what_is_right(drawn: tuple[nx.DiGraph, dict[str, float]]) -> None:
    graph, errors = drawn
    found = Network(graph, errors).search()
    if found.first is None:
        assert all(errors[name] <= BOUND for name in graph if not graph.out_degree(name))
    else:
        assert errors[found.first] > BOUND
        assert found.inputs == dict.fromkeys(graph.predecessors(found.first), 0.0)


@settings(max_examples=100, deadline=None)
@given(networks(), st.data())
def test_where_errors_stay_the_culprit_is_found(
    drawn: tuple[nx.DiGraph, dict[str, float]], data: st.DataObject
) -> None:
    graph, _ = drawn
    culprit = data.draw(st.sampled_from(list(graph)))
    assert Network(graph, wrong_from(graph, culprit)).search().first == culprit

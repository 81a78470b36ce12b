"""Each exact solver against exhaustive search, on DAGs whose layers share conversions; and random search.

CI draws 200 of them, and 2,000 are drawn by

    SARTOR_DAGS=2000 pytest -n 0 tests/tuning/selection/test_exact_solvers.py
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive, random_search
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import evaluate
from sartor.tuning.selection.programming import ilp

BuildRandom = Callable[[Random], Problem]

DAGS = int(os.environ.get("SARTOR_DAGS", "200"))
INSIDE = Schema("cpu", "f32", "inside a kernel")


@settings(max_examples=DAGS, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(rng=st.builds(Random, st.integers(0, 2**32 - 1)))
def test_exact_solvers_find_the_best_of_all_plans(random_problem: BuildRandom, rng: Random) -> None:
    problem = _with_fused_kernel(_sharing(random_problem(rng)), rng)
    assume(problem.readers and exhaustive.combinations(problem) <= 3000)
    try:
        best = exhaustive.select(problem).cost
    except InfeasibleError:
        for select in (dprs.select, ilp.select, auto.select, pbqp.select):
            with pytest.raises(InfeasibleError):
                select(problem)
        return
    for select in (dprs.select, ilp.select, auto.select):
        found = select(problem)
        assert found.optimal
        assert found.cost == best
        assert evaluate(problem, found.assignment) == found.costs
    reduced = pbqp.select(problem)
    assert reduced.lower_bound <= best <= reduced.cost
    assert not reduced.optimal or reduced.cost == best


def _sharing(problem: Problem) -> Problem:
    """The problem in which all edges from a layer carry one value, at the prices of its first edge."""
    edges = {edge: replace(edge, result=0) for edge in problem.edges}
    prices: dict[tuple[str, Schema, Schema], Cost] = {}
    for (edge, produced, needed), cost in problem.adapts.items():
        prices.setdefault((edge.producer, produced, needed), cost)
    adapts = {
        (edges[edge], produced, needed): prices[edge.producer, produced, needed]
        for edge, produced, needed in problem.adapts
    }
    return replace(problem, edges=tuple(edges.values()), adapts=adapts)


def _with_fused_kernel(problem: Problem, rng: Random) -> Problem:
    """The problem with a kernel that computes two layers, one of which reads the other, in half of the cases."""
    if not problem.edges or rng.random() < 0.5:
        return problem
    link = rng.choice(problem.edges)
    nodes = {node.name: node for node in problem.nodes}
    first, second = nodes[link.producer], nodes[link.consumer]
    into = {edge.slot for edge in problem.edges if (edge.producer, edge.consumer) == (first.name, second.name)}
    whole, last = rng.choice(first.choices), rng.choice(second.choices)
    inputs = tuple(INSIDE if slot in into else schema for slot, schema in enumerate(last.inputs))
    halves = {
        first.name: Choice("kernel", whole.inputs, INSIDE, Cost(latency=float(rng.randint(0, 9)))),
        second.name: Choice("kernel", inputs, last.output, Cost()),
    }
    return replace(problem, nodes=tuple(_with_choice(node, halves.get(node.name)) for node in problem.nodes))


def _with_choice(node: Node, choice: Choice | None) -> Node:
    return node if choice is None else replace(node, choices=(*node.choices, choice))


BuildNet = Callable[..., Problem]

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
NET = [[], [0], [1], [1, 2], [3], [4]]


def test_the_curve_falls_to_what_is_returned(layout_net: BuildNet) -> None:
    search = random_search.search(layout_net(NET), episodes=80)
    assert len(search.values) == len(search.curve) == 80
    assert all(later <= earlier for earlier, later in pairwise(search.curve))
    assert search.curve[0] == search.values[0] > search.curve[-1]
    assert search.curve[-1] == min(search.values) == pytest.approx(search.selection.cost)


def test_a_seed_repeats_a_search_and_another_does_not(layout_net: BuildNet) -> None:
    problem = layout_net(NET)
    assert random_search.search(problem, 20, seed=3).values == random_search.search(problem, 20, seed=3).values
    assert random_search.search(problem, 20, seed=3).values != random_search.search(problem, 20, seed=4).values


def test_more_episodes_extend_a_search(layout_net: BuildNet) -> None:
    problem = layout_net(NET)
    assert random_search.search(problem, 50).values[:20] == random_search.search(problem, 20).values


def test_small_problems_are_found_out(layout_net: BuildNet) -> None:
    problem = layout_net([[], [0], [1]])
    assert random_search.select(problem).cost == pytest.approx(dprs.select(problem).cost)


def test_dead_ends_are_recorded_and_never_returned() -> None:
    """Half of the stems get past the left branch, and no further."""
    search = random_search.search(with_dead_ends(), episodes=40)
    assert 5 < search.values.count(math.inf) < 35
    assert search.selection.choices["stem"].name == "dear"


def test_where_all_episodes_end_dead_there_still_is_a_plan() -> None:
    searches = [random_search.search(with_dead_ends(), episodes=1, seed=seed) for seed in range(20)]
    assert {search.curve for search in searches} == {(9.0,), (math.inf,)}
    assert {search.selection.cost for search in searches} == {9.0}


def with_dead_ends() -> Problem:
    """The branches can read what either stem writes, but the merge takes only what the dear one leads to."""
    edges = (Edge("stem", "left", 0), Edge("stem", "right", 0), Edge("left", "merge", 0), Edge("right", "merge", 1))
    either = (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))
    merges = tuple(Choice(f"{one} and {other}", (one, other), A, Cost()) for one, other in ((A, B), (B, A), (B, B)))
    stem = (Choice("cheap", (), A, Cost(1.0)), Choice("dear", (), B, Cost(9.0)))
    nodes = (Node("stem", stem), Node("left", either), Node("right", either), Node("merge", merges))
    return Problem(nodes, edges, {})

"""Each exact solver against exhaustive search, on DAGs whose layers share conversions.

CI draws 200 of them, and 2,000 are drawn by

    SARTOR_DAGS=2000 pytest -n 0 tests/tuning/selection/test_exact_solvers.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Node, Problem
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

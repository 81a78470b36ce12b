"""Conversions that several layers share: what a plan of them costs, and the problems without them that stand for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.elimination.unknowns import Unknowns
from sartor.tuning.selection.heuristics import converters, pbqp
from sartor.tuning.selection.heuristics.converters import Unshared
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.indexed import index_problem
from sartor.tuning.selection.problem.limits import peak_bytes
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Selection, Selector, evaluate
from sartor.tuning.selection.problem.shared_conversions import Relaxed
from sartor.tuning.selection.programming import ilp
from tests.tuning.selection.all_selectors import ALL_SELECTORS

BuildRandom = Callable[[Random], Problem]

A, B = (Schema.parse(f"cpu:f32@{layout}") for layout in ("nchw", "nhwc"))
READERS = ("left", "middle", "right")
RNG = st.builds(Random, st.integers(0, 2**32 - 1))
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _choice(name: str, needed: tuple[Schema, ...], written: Schema, seconds: float) -> Choice:
    return Choice(name, needed, written, Cost(latency=seconds))


def _three_readers() -> Problem:
    """A layer that writes one schema; three that are faster by 0.5 in another, to which converting takes 1."""
    stem = Node("stem", (_choice("only", (), A, 3.0),), output_bytes=8.0)
    readers = [
        Node(name, (_choice("slow", (A,), A, 1.0), _choice("fast", (B,), A, 0.5)), output_bytes=1.0) for name in READERS
    ]
    edges = tuple(Edge("stem", name, 0, 0) for name in READERS)
    return Problem((stem, *readers), edges, {(edge, A, B): Cost(latency=1.0) for edge in edges})


@pytest.mark.parametrize("select", [ALL_SELECTORS[name] for name in ("auto", "dprs", "ilp", "pbqp", "exhaustive")])
def test_a_conversion_is_paid_for_once(select: Selector) -> None:
    found = select(_three_readers())
    assert {name: found.choices[name].name for name in READERS} == dict.fromkeys(READERS, "fast")
    assert found.cost == found.lower_bound == 5.5
    assert found.optimal


def test_edges_without_a_number_share_nothing() -> None:
    shared = _three_readers()
    alone = tuple(Edge("stem", name, 0) for name in READERS)
    apart = Problem(shared.nodes, alone, {(edge, A, B): Cost(latency=1.0) for edge in alone})
    assert {choice.name for choice in dprs.select(apart).choices.values()} == {"only", "slow"}


def test_a_value_has_one_price() -> None:
    problem = _three_readers()
    first, *_ = problem.edges
    with pytest.raises(ValueError, match="result 0 of 'stem' has another cost on edge"):
        Problem(problem.nodes, problem.edges, {**problem.adapts, (first, A, B): Cost(latency=2.0)})


def test_a_copy_lives_until_its_last_reader() -> None:
    problem = _three_readers()
    plan = dprs.select(problem).assignment
    # The stem's output, its copy, and the output of the layer that runs: outputs that nothing reads live no longer.
    assert peak_bytes(problem, plan) == 8 + 8 + 1
    middle = next(node for node in problem.nodes if node.name == "middle")
    between = replace(plan, choices={**plan.choices, "middle": replace(middle.choices[0], scratch=4.0)})
    wide = replace(middle, choices=(between.choices["middle"], middle.choices[1]))
    apart = replace(problem, nodes=tuple(wide if node.name == "middle" else node for node in problem.nodes))
    # The layer between two readers of the copy does not read it, but has scratch beside it.
    assert peak_bytes(apart, between) == 8 + 8 + 1 + 4
    costs = evaluate(apart, between)
    assert costs is not None
    assert costs.latency == 3.0 + 1.0 + 0.5 + 1.0 + 0.5


@QUICK
@given(rng=RNG)
def test_relaxing_makes_no_plan_dearer_and_spreading_tells_the_truth(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 500)
    try:
        plans = exhaustive.k_best(problem, 500)
        origin = index_problem(problem, _best)
    except InfeasibleError:
        assume(False)
    relaxed = Unshared(origin)
    best = dprs.select(problem)
    cheapest = min(relaxed.model.value(pick) for pick in _all_picks(relaxed))
    assert cheapest <= plans[0].cost == best.cost
    spread = relaxed.spread_also(relaxed.shared)
    assume(math.prod(len(layer.options) for layer in spread.model.layers) <= 20_000)
    assert min(spread.model.value(pick) for pick in _all_picks(spread)) == plans[0].cost


@QUICK
@given(rng=RNG)
def test_the_tables_add_up_to_the_value_of_a_plan(random_problem: BuildRandom, rng: Random) -> None:
    try:
        origin = index_problem(random_problem(rng), _best)
    except InfeasibleError:
        assume(False)
    relaxed = Relaxed(origin)
    some = relaxed.spread_also(frozenset(value for value in relaxed.shared if rng.random() < 0.5))
    for problem in (relaxed, some, relaxed.spread_also(relaxed.shared)):
        unknowns = Unknowns(problem)
        picks = [rng.randrange(len(layer.options)) for layer in origin.layers]
        values = unknowns.values(picks)
        assert unknowns.picks(values) == picks
        total = sum(float(factor.table[tuple(values[axis] for axis in factor.scope)]) for factor in unknowns.factors())
        assert total == pytest.approx(problem.value(picks))


def _best(childnet: Problem) -> list[Selection]:
    return [exhaustive.select(childnet)]


def _all_picks(unshared: Unshared) -> Iterator[Sequence[int]]:
    return itertools.product(*(range(len(layer.options)) for layer in unshared.model.layers))


@QUICK
@given(rng=RNG)
def test_several_plans_are_the_best_ones(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000)
    try:
        best = [each.cost for each in exhaustive.k_best(problem, 5)]
    except InfeasibleError:
        assume(False)
    assert [each.cost for each in dprs.k_best(problem, 5)] == best
    assert [each.cost for each in ilp.k_best(problem, 5)] == best


def test_values_with_too_many_sets_leave_a_bound(random_problem: BuildRandom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converters, "MOST_SETS", 0)
    unproven = 0
    for seed in range(60):
        problem = random_problem(Random(seed))
        if exhaustive.combinations(problem) > 3000:
            continue
        try:
            best = exhaustive.select(problem).cost
        except InfeasibleError:
            continue
        found = pbqp.select(problem)
        assert found.lower_bound <= best <= found.cost
        assert not found.optimal or found.cost == best
        unproven += not found.optimal
    assert unproven

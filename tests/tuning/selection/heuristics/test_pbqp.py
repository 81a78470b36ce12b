"""PBQP's own properties: where it is exact, that it says so, and that it never returns an impossible plan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from time import perf_counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import pbqp
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.programming import ilp

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))

CHAIN = [[], [0], [1], [2]]
RESIDUAL = [[], [0], [1], [2, 0], [3], [4, 3]]
DIAMONDS = [[], [0], [0], [1, 2], [3], [3], [4, 5]]
TRANSFORMER = [[], [0], [0], [0], [1, 2], [4, 3], [5, 0]]
DENSE = [list(range(layer)) for layer in range(6)]


@pytest.mark.parametrize(
    ("producers", "exact"),
    [(CHAIN, True), (RESIDUAL, True), (DIAMONDS, True), (TRANSFORMER, True), (DENSE, False)],
    ids=["chain", "residual", "diamonds", "transformer", "dense"],
)
@pytest.mark.parametrize("seed", range(3))
def test_series_parallel_nets_need_exact_reductions_only(
    layout_net: BuildNet, caplog: pytest.LogCaptureFixture, producers: list[list[int]], exact: bool, seed: int
) -> None:
    problem = layout_net(producers, seed=seed)
    with caplog.at_level(logging.INFO):
        found, best = pbqp.select(problem), exhaustive.select(problem)
    assert ("RN settled 0 of" in caplog.text) == exact
    assert found.optimal or not exact
    assert found.lower_bound <= best.cost * (1 + 1e-12)
    assert best.cost <= found.cost * (1 + 1e-12)
    if exact:
        assert found.cost == pytest.approx(best.cost, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(rng=RNG)
def test_it_is_the_optimum_where_it_says_so(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    try:
        best = dprs.select(problem).cost
    except InfeasibleError:
        assume(False)
    found = pbqp.select(problem)
    assert found.lower_bound <= best <= found.cost
    assert not found.optimal or found.cost == best


def test_what_rn_guesses_is_revised(layout_net: BuildNet) -> None:
    """A dense block as torchvision writes it, on which RN's first guesses end 12% above the optimum."""
    producers: list[list[int]] = [[]]
    block = [0]
    for _ in range(16):
        start = len(producers)
        producers += [list(block), [start], [start + 1]]
        block.append(start + 2)
    problem = layout_net(producers, schemas=5, choices=10, seed=3)
    found, best = pbqp.select(problem), ilp.select(problem)
    assert found.lower_bound <= best.cost <= found.cost <= 1.01 * best.cost
    assert not found.optimal


def test_two_edges_between_the_same_layers_add_up() -> None:
    edges = (Edge("x", "y", 0), Edge("x", "y", 1))
    nodes = (
        Node("x", (Choice("a", (), A, Cost(1.0)), Choice("b", (), B, Cost(4.0)))),
        Node("y", (Choice("y", (B, B), B, Cost()),)),
    )
    found = pbqp.select(Problem(nodes, edges, {(edge, A, B): Cost(2.0) for edge in edges}))
    assert (found.choices["x"].name, found.cost, found.optimal) == ("b", 4.0, True)


def test_edges_that_cost_nothing_hide_no_structure(layout_net: BuildNet) -> None:
    """With one schema all matrices vanish, and even a net where all is joined to all is solved exactly."""
    assert pbqp.select(layout_net(DENSE, schemas=1)).optimal


def test_the_bound_is_above_that_of_layers_on_their_own(layout_net: BuildNet) -> None:
    problem = layout_net([list(range(layer)) for layer in range(12)])
    found = pbqp.select(problem)
    cheapest = sum(min(choice.cost.latency for choice in node.choices) for node in problem.nodes)
    assert cheapest < found.lower_bound < found.cost


@settings(max_examples=150, deadline=None)
@given(rng=RNG)
def test_what_the_heuristic_breaks_is_repaired(rng: Random) -> None:
    """Wide nets with few adapts: local minima often have no plan around them."""
    problem = _sparse(rng)
    try:
        best = dprs.select(problem).cost
    except InfeasibleError:
        with pytest.raises(InfeasibleError, match="layer 'n"):
            pbqp.select(problem)
        return
    assert pbqp.select(problem).cost >= best


def test_ten_thousand_layers(layout_net: BuildNet) -> None:
    problem = layout_net([[], *([layer] for layer in range(9_999))])
    started = perf_counter()
    found = pbqp.select(problem)
    assert perf_counter() - started < 10
    assert found.optimal
    assert found.cost == pytest.approx(dprs.select(problem).cost, rel=1e-9)


def _sparse(rng: Random) -> Problem:
    """Eight layers that mostly read four others in one of three schemas; a third of the adapts exists."""
    schemas = [Schema("cpu", "f32", name) for name in ("x", "y", "z")]
    producers = [rng.sample(range(layer), min(layer, 4)) for layer in range(8)]
    nodes = tuple(
        Node(
            f"n{layer}",
            tuple(
                Choice(f"c{number}", tuple(rng.choices(schemas, k=len(reads))), schema, Cost(float(rng.randint(0, 9))))
                for number, schema in enumerate(schemas * 2)
            ),
        )
        for layer, reads in enumerate(producers)
    )
    edges = tuple(
        Edge(f"n{producer}", f"n{layer}", slot)
        for layer, reads in enumerate(producers)
        for slot, producer in enumerate(reads)
    )
    pairs = [(edge, one, other) for edge in edges for one in schemas for other in schemas if one != other]
    return Problem(nodes, edges, {pair: Cost(float(rng.randint(0, 5))) for pair in pairs if rng.random() < 0.33})

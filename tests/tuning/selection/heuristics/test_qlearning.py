"""Q-learning: QS-DNN's schedule, what it learns, its record and its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from benchmarks.selection import random_search
from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy, qlearning
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.indexed import index_problem
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem

BuildNet = Callable[..., Problem]

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
CHAIN = [[], *([layer] for layer in range(19))]
RESIDUAL = [[], [0], [1], [2, 0], [3], [4], [5, 3], [6], [7], [8, 6]]
INCEPTION = [[], [0], [0], [2], [0], [4], [5], [1, 3, 6], [7]]


def test_epsilon_follows_the_paper() -> None:
    schedule = [qlearning._epsilon(episode, 1000) for episode in range(1000)]
    assert schedule[:500] == [1.0] * 500
    assert [schedule[start] for start in range(500, 1000, 50)] == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert all(len(set(schedule[start : start + 50])) == 1 for start in range(500, 1000, 50))
    assert qlearning._epsilon(0, 1) == 1.0


def test_the_state_holds_what_a_layer_reads_and_what_is_open(layout_net: BuildNet) -> None:
    """In a straight net the layer before, as in the paper; the branch point as long as it is to be read."""

    def remembered(producers: list[list[int]]) -> list[tuple[int, ...]]:
        return qlearning._remembered(index_problem(layout_net(producers), lambda _: []))

    assert remembered(CHAIN[:4]) == [(), (0,), (1,), (2,)]
    assert remembered(RESIDUAL[:5]) == [(), (0,), (1, 0), (2, 0), (3,)]
    assert remembered(INCEPTION) == [(), (0,), (0, 1), (2, 1), (0, 3), (4, 3), (5, 3), (6, 3), (7,)]


@pytest.mark.parametrize("producers", [CHAIN[:8], RESIDUAL[:7]], ids=["chain", "residual"])
def test_it_finds_the_optimum_of_small_nets(layout_net: BuildNet, producers: list[list[int]]) -> None:
    problem = layout_net(producers)
    assert qlearning.select(problem).cost == pytest.approx(dprs.select(problem).cost)


@pytest.mark.parametrize("producers", [CHAIN, RESIDUAL, INCEPTION], ids=["chain", "residual", "inception"])
def test_it_learns(layout_net: BuildNet, producers: list[list[int]]) -> None:
    """The last plans, made without chance, are far better than the first ones, which are chance alone."""
    problem = layout_net(producers)
    values = qlearning.search(problem).values
    best, chance = dprs.select(problem).cost, sum(values[:500]) / 500
    assert sum(values[-50:]) / 50 - best < 0.25 * (chance - best)


def test_it_beats_random_search(layout_net: BuildNet) -> None:
    for seed in range(3):
        problem = layout_net(CHAIN, seed=seed)
        assert qlearning.search(problem, 300).selection.cost < random_search.search(problem, 300).selection.cost


def test_it_sees_further_than_greedy() -> None:
    """QS-DNN's figure 1: the fastest first layer leads into an adapt."""
    edge = Edge("x", "y", 0)
    nodes = (
        Node("x", (Choice("a", (), A, Cost(1.0)), Choice("b", (), B, Cost(2.0)))),
        Node("y", (Choice("b", (B,), B, Cost(1.0)),)),
    )
    problem = Problem(nodes, (edge,), {(edge, A, B): Cost(5.0)})
    assert (greedy.select(problem).cost, qlearning.search(problem, 40).values[-1]) == (7.0, 3.0)


def test_the_curve_falls_to_what_is_returned(layout_net: BuildNet) -> None:
    search = qlearning.search(layout_net(RESIDUAL), episodes=80)
    assert len(search.values) == len(search.curve) == 80
    assert all(later <= earlier for earlier, later in pairwise(search.curve))
    assert search.curve[-1] == min(search.values) == pytest.approx(search.selection.cost)


def test_a_seed_repeats_a_search_and_another_does_not(layout_net: BuildNet) -> None:
    problem = layout_net(RESIDUAL)
    assert qlearning.search(problem, 60, seed=3).values == qlearning.search(problem, 60, seed=3).values
    assert qlearning.search(problem, 60, seed=3).values != qlearning.search(problem, 60, seed=4).values


def test_it_learns_to_avoid_dead_ends() -> None:
    """A stem that costs less, but gets no further than the branches."""
    edges = (Edge("stem", "left", 0), Edge("stem", "right", 0), Edge("left", "merge", 0), Edge("right", "merge", 1))
    either = (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))
    merges = tuple(Choice(f"{one} and {other}", (one, other), A, Cost()) for one, other in ((A, B), (B, A), (B, B)))
    stem = (Choice("cheap", (), A, Cost(1.0)), Choice("dear", (), B, Cost(9.0)))
    nodes = (Node("stem", stem), Node("left", either), Node("right", either), Node("merge", merges))
    values = qlearning.search(Problem(nodes, edges, {}), 200).values
    assert values[:50].count(math.inf) > 10
    assert set(values[-20:]) == {9.0}


def test_many_states_fit(layout_net: BuildNet) -> None:
    """More states than the first table has rows, with choices that are not equally many."""
    problem = layout_net([[], [0], [1, 0], [2, 1], [3, 2]], schemas=5, choices=5)
    nodes = (*problem.nodes[:-1], Node("n4", problem.nodes[-1].choices[:2]))
    narrowed = Problem(nodes, problem.edges, problem.adapts)
    assert qlearning.select(narrowed).cost == pytest.approx(dprs.select(narrowed).cost, rel=0.05)


def test_nets_of_one_layer() -> None:
    rng = Random(0)
    choices = tuple(Choice(f"c{number}", (), schema, Cost(rng.random())) for number, schema in enumerate((A, B)))
    problem = Problem((Node("x", choices),), (), {})
    assert qlearning.search(problem, 20).selection.cost == min(choice.cost.latency for choice in choices)

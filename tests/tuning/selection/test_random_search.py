"""Random search: its record, its seeds, and that it goes where plans are."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from benchmarks.selection import random_search
from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem

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

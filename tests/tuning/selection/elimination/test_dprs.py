"""DPRS's own properties, and elimination and enumeration against the sum of all tables written out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination import dprs, order
from sartor.tuning.selection.elimination.elimination import DeadEndError, Factor, cheapest, eliminate
from sartor.tuning.selection.elimination.unknowns import Unknowns
from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.indexed import IndexedProblem, index_problem
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.shared_conversions import Relaxed
from tests.tuning.selection.all_selectors import has_plan
from tests.tuning.selection.seeded_plans import printed_plans

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]
Producers = list[list[int]]

A, B = (Schema.parse(text) for text in ("cpu:f32@nchw", "cpu:f32@nhwc"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))

# Figure 2 of SoftNeuro, its layers counted from 0.
NET_A: Producers = [[], [0], [1], [2]]
NET_B: Producers = [[], [0], [0], [1, 2]]
NET_C: Producers = [[], [0], [1], [1], [2, 3], [0], [5], [4, 6]]


def _indexed(problem: Problem) -> IndexedProblem:
    return index_problem(problem, lambda childnet: [dprs.select(childnet)])


@pytest.mark.parametrize(
    ("producers", "relaxed"),
    [
        (NET_A, {}),
        (NET_B, {3: [0]}),
        (NET_C, {4: [1], 7: [0]}),
        # A residual around a diamond; the inner branch skips out of it and ends with the outer one.
        ([[], [0], [1], [1, 2], [0, 3, 1]], {4: [0, 1]}),
        # Two outputs: the branch stays open until the auxiliary output, whose index is 3.
        ([[], [0], [0]], {3: [0]}),
        # x * x reads its producer twice, which is no branch.
        ([[], [0, 0]], {}),
    ],
)
def test_constraints_are_relaxed_where_proposition_3_says(
    layout_net: BuildNet, producers: Producers, relaxed: dict[int, list[int]]
) -> None:
    found = order.relaxations(_indexed(layout_net(producers)))
    assert {layer: branching for layer, branching in enumerate(found) if branching} == relaxed


@pytest.mark.parametrize(("producers", "expected"), [(NET_A, 0), (NET_B, 1), (NET_C, 1)])
def test_width_is_the_number_of_open_branches(layout_net: BuildNet, producers: Producers, expected: int) -> None:
    """With the prefix set aside, the inner branches of net C do not mention the outer branch."""
    assert dprs.width(layout_net(producers)) == expected


def test_straight_net_follows_equation_3() -> None:
    """S_2(b) = min(S_1(b), S_1(a) + adapt) + F_2(b), by hand."""
    edge = Edge("x", "y", 0)
    first = (Choice("a", (), A, Cost(1.0)), Choice("b", (), B, Cost(4.0)))
    second = (Choice("a", (A,), A, Cost(9.0)), Choice("b", (B,), B, Cost(2.0)))
    problem = Problem((Node("x", first), Node("y", second)), (edge,), {(edge, A, B): Cost(2.5)})
    found = dprs.select(problem)
    assert (found.choices["x"].name, found.choices["y"].name, found.cost) == ("a", "b", 5.5)


def test_layers_before_a_branch_cost_once() -> None:
    """Both branches of net B start at the same layer, which must not be paid, or chosen, twice."""
    edges = (
        Edge("stem", "left", 0),
        Edge("stem", "right", 0),
        Edge("left", "add", 0),
        Edge("right", "add", 1),
    )
    nodes = (
        Node("stem", (Choice("a", (), A, Cost(100.0)), Choice("b", (), B, Cost(103.0)))),
        Node("left", (Choice("a", (A,), A, Cost(1.0)), Choice("b", (B,), A, Cost(0.0)))),
        Node("right", (Choice("b", (B,), A, Cost(1.0)),)),
        Node("add", (Choice("a", (A, A), A, Cost(1.0)),)),
    )
    adapts = {(edge, *pair): Cost(8.0) for edge in edges for pair in ((A, B), (B, A))}
    found = dprs.select(Problem(nodes, edges, adapts))
    assert found.choices["stem"].name == "b"
    assert found.cost == 105.0


@settings(max_examples=60, deadline=None)
@given(rng=RNG)
def test_every_order_eliminates_every_variable_once(random_problem: BuildRandom, rng: Random) -> None:
    try:
        relaxed = Relaxed(_indexed(random_problem(rng)))
    except InfeasibleError:
        assume(False)
    relaxed = relaxed.spread_also(frozenset(value for value in relaxed.shared if rng.random() < 0.5))
    unknowns = Unknowns(relaxed)
    variables = list(range(len(unknowns.sizes)))
    assert sorted(order.algorithm_1(relaxed.origin, unknowns)) == variables
    ample = order.elimination_order(relaxed)
    assert sorted((*ample.variables, *ample.settled)) == variables
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "REORDER_ABOVE", 0)
        patch.setattr(order, "JOIN_LIMIT", 8)
        cramped = order.elimination_order(relaxed)
    assert sorted((*cramped.variables, *cramped.settled, *cramped.fixed)) == variables


@settings(max_examples=60, deadline=None)
@given(rng=RNG)
def test_another_order_is_as_exact(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000 and has_plan(problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "REORDER_ABOVE", 0)
        found = dprs.select(problem)
    assert found.optimal
    assert found.cost == exhaustive.select(problem).cost


@settings(max_examples=60, deadline=None)
@given(rng=RNG)
def test_too_wide_a_net_gets_a_bound_and_no_worse_a_plan(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000 and has_plan(problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "JOIN_LIMIT", 8)
        found = dprs.select(problem)
    best = exhaustive.select(problem).cost
    assert found.lower_bound <= best <= found.cost <= greedy.select(problem).cost
    assert found.optimal == (found.lower_bound == found.cost)


def test_a_net_too_wide_is_said_to_be(layout_net: BuildNet, caplog: pytest.LogCaptureFixture) -> None:
    """Every layer reads all before it, as torchvision writes DenseNet's blocks: no order of it is narrow."""
    problem = layout_net([list(range(layer)) for layer in range(20)], schemas=4)
    with caplog.at_level(logging.WARNING):
        found = dprs.select(problem)
    assert not found.optimal
    assert found.lower_bound < found.cost < greedy.select(problem).cost
    assert "no exact order fits" in caplog.text


def test_options_that_adapts_cannot_save_do_not_make_a_net_wide(layout_net: BuildNet) -> None:
    """With cheap adapts most layers take what is fastest alone, whatever the others take."""
    wide = layout_net([list(range(layer)) for layer in range(20)], schemas=4)
    cheap = {key: Cost(cost.latency / 20) for key, cost in wide.adapts.items()}
    best, *others = dprs.k_best(Problem(wide.nodes, wide.edges, cheap), 3)
    assert best.optimal
    assert best.cost < others[0].cost <= others[1].cost


def _residual(blocks: int) -> Producers:
    net: Producers = [[], [0]]
    for _ in range(blocks):
        start = len(net) - 1
        net += [[start], [start + 1], [start + 2], [start + 3, start]]
    return net


def _concatenated(blocks: Sequence[int]) -> Producers:
    net: Producers = [[]]
    for layers in blocks:
        for _ in range(layers):
            start = len(net) - 1
            net += [[start], [start + 1], [start, start + 2]]
        net.append([len(net) - 1])
    return net


def _inception(modules: int) -> Producers:
    net: Producers = [[]]
    for _ in range(modules):
        x = len(net) - 1
        net += [[x], [x], [x + 2], [x], [x + 4], [x + 5], [x], [x + 7], [x + 1, x + 3, x + 6, x + 8]]
    return net


def _decoder(blocks: int) -> Producers:
    """A transformer whose blocks all read one mask and write out their keys and values."""
    net: Producers = [[], []]
    x = 0
    for _ in range(blocks):
        norm = len(net)
        net += [[x], [norm], [norm], [norm], [norm + 2], [norm + 3], [norm + 1, norm + 2], [norm + 6, 1]]
        net += [[norm + 7], [norm + 8, norm + 3], [norm + 9], [norm + 10, x]]
        net += [[norm + 11], [norm + 12], [norm + 13], [norm + 14, norm + 11]]
        x = len(net) - 1
    return net


def _detector(scales: int) -> Producers:
    """SSD: heads at every scale, gathered by two concats."""
    net = _residual(16)
    heads: list[list[int]] = [[], []]
    x = len(net) - 1
    for _ in range(scales):
        for head in heads:
            net += [[x], [len(net)]]
            head.append(len(net) - 1)
        net.append([x])
        x = len(net) - 1
    return [*net, *heads]


@pytest.mark.parametrize(
    "producers",
    [_residual(86), _concatenated((6, 12, 24, 16)), _inception(11), _decoder(12), _detector(6)],
    ids=["resnet101", "densenet121", "inception", "decoder12", "ssd"],
)
def test_whole_networks_are_solved_to_optimality(layout_net: BuildNet, producers: Producers) -> None:
    problem = layout_net(producers, schemas=6, choices=10)
    best, *others = dprs.k_best(problem, 3)
    assert best.optimal
    assert best.cost < greedy.select(problem).cost
    assert best.cost <= others[0].cost <= others[1].cost


def test_the_plan_does_not_depend_on_the_hash_seed() -> None:
    outputs = set(printed_plans("[greedy.select(problem), *dprs.k_best(problem, 3)]", 40))
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 40


SIZES = (2, 3, 2, 3)


def _factors(seed: int, holes: bool) -> list[Factor]:
    rng = np.random.default_rng(seed)
    scopes = [(0,), (1,), (2,), (3,), (0, 2), (1, 2), (0, 1, 3)]
    factors = []
    for scope in scopes:
        table = rng.integers(0, 8, [SIZES[axis] for axis in scope]).astype(np.float64)
        if holes:
            table[rng.random(table.shape) < 0.2] = np.inf
        factors.append(Factor(scope, table, scope[-1]))
    return factors


def _all_sums(factors: list[Factor]) -> dict[tuple[int, ...], float]:
    sums = {}
    for values in product(*(range(size) for size in SIZES)):
        total = sum(float(f.table[tuple(values[axis] for axis in f.scope)]) for f in factors)
        if np.isfinite(total):
            sums[values] = total
    return sums


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(4)), holes=st.booleans(), k=st.integers(1, 40))
def test_any_order_finds_the_cheapest(seed: int, order: list[int], holes: bool, k: int) -> None:
    factors = _factors(seed, holes)
    sums = _all_sums(factors)
    if not sums:
        with pytest.raises(DeadEndError):
            eliminate(factors, order)
        return
    elimination = eliminate(factors, order)
    found = [tuple(values) for values in cheapest(elimination, [0] * 4, k)]
    assert elimination.minimum == min(sums.values())
    assert len(set(found)) == len(found)
    assert [sums[values] for values in found] == sorted(sums.values())[:k]


def test_dead_end_names_the_last_layer_of_the_table() -> None:
    free = Factor((0,), np.zeros(2), 0)
    blocked = Factor((0, 1), np.full((2, 2), np.inf), 7)
    with pytest.raises(DeadEndError) as caught:
        eliminate([free, blocked], [0, 1])
    assert caught.value.layer == 7

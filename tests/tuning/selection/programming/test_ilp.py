"""The integer program: exact on any graph, its ties, its time limit, alternatives, and the most exact plan."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, evaluate
from sartor.tuning.selection.problem.trade_offs import worth_keeping
from sartor.tuning.selection.programming import ilp
from sartor.tuning.selection.programming.alternatives import alternatives
from sartor.tuning.selection.programming.least_memory import most_exact
from tests.tuning.selection.all_selectors import has_plan
from tests.tuning.selection.seeded_plans import printed_plans

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]

A, B, C = (Schema.parse(f"cpu:f32@{layout}") for layout in ("nchw", "nhwc", "nchw16c"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(rng=RNG)
def test_it_is_exact(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000 and has_plan(problem))
    found = ilp.select(problem)
    assert found.optimal
    assert found.cost == found.lower_bound == exhaustive.select(problem).cost


@QUICK
@given(rng=RNG, k=st.integers(1, 8))
def test_k_best_are_the_cheapest_distinct_plans(random_problem: BuildRandom, rng: Random, k: int) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000 and has_plan(problem))
    found = ilp.k_best(problem, k)
    assert [plan.cost for plan in found] == [plan.cost for plan in exhaustive.k_best(problem, k)]
    assert all(one.assignment != other.assignment for one in found for other in found if one is not other)
    for plan in found:
        assert evaluate(problem, plan.assignment) == plan.costs
        assert plan.optimal == (plan.cost == found[0].cost)


def test_at_least_one_plan_is_asked_for() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ilp.k_best(Problem((), (), {}), 0)


def test_a_dense_block_is_proven_optimal(layout_net: BuildNet) -> None:
    """DenseNet as torchvision writes it, every concat reading all layers before it in its block."""
    producers: list[list[int]] = [[]]
    for layers in (6, 12, 24, 16):
        block = [len(producers) - 1]
        for _ in range(layers):
            start = len(producers)
            producers += [list(block), [start], [start + 1]]
            block.append(start + 2)
        producers.append(list(block))
    problem = layout_net(producers, schemas=4, choices=8)
    found = ilp.select(problem)
    assert found.optimal
    assert found.cost <= dprs.select(problem).cost


def test_no_layer_alone_could_take_an_earlier_choice_for_the_same() -> None:
    """Both choices of the middle layer cost the same, only between the same neighbours."""
    edges = (Edge("x", "y", 0), Edge("y", "z", 0))
    nodes = (
        Node("x", (Choice("only", (), A, Cost(1.0)),)),
        Node("y", (Choice("first", (A,), B, Cost(1.0)), Choice("second", (A,), C, Cost(1.0)))),
        Node("z", (Choice("only", (A,), A, Cost(1.0)),)),
    )
    adapts = {(edges[1], B, A): Cost(0.5), (edges[1], C, A): Cost(0.5)}
    assert ilp.select(Problem(nodes, edges, adapts)).choices["y"].name == "first"


def test_out_of_time_it_is_no_worse_than_greedy(layout_net: BuildNet, caplog: pytest.LogCaptureFixture) -> None:
    problem = layout_net([list(range(layer)) for layer in range(12)])
    with caplog.at_level(logging.WARNING):
        found = ilp.k_best(problem, 2, seconds=0.0)[0]
    assert not found.optimal
    assert found.lower_bound <= found.cost <= greedy.select(problem).cost
    assert "time is up" in caplog.text


def test_only_what_is_worse_in_everything_is_left_out() -> None:
    fast = Choice("fast", (), A, Cost(1.0, memory=9.0))
    small = Choice("small", (), A, Cost(2.0, memory=1.0))
    slow = Choice("slow", (), A, Cost(3.0, memory=9.0))
    other = Choice("other", (), B, Cost(9.0, memory=9.0))
    copy = Choice("copy", (), A, Cost(1.0, memory=9.0))
    choices = (slow, fast, small, other, copy)
    latency, both = [Quantity.LATENCY], [Quantity.LATENCY, Quantity.MEMORY]
    assert worth_keeping(choices, latency) == (fast, other)
    assert worth_keeping(choices, both) == (fast, small, other)
    assert worth_keeping(choices, both, keep=2) == (fast, small, other, copy)
    assert worth_keeping(choices, latency, keep=3) == (fast, small, other, copy)


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e6])
def test_the_unit_of_the_costs_does_not_matter(layout_net: BuildNet, scale: float) -> None:
    """Seconds of small layers are near the tolerances of a solver that is not told their scale."""
    problem = layout_net([[], [0], [0, 1], [2, 0], [3, 1]])
    nodes = tuple(
        Node(
            node.name,
            tuple(
                Choice(choice.name, choice.inputs, choice.output, _times(choice.cost, scale)) for choice in node.choices
            ),
        )
        for node in problem.nodes
    )
    adapts = {key: _times(cost, scale) for key, cost in problem.adapts.items()}
    scaled = Problem(nodes, problem.edges, adapts, Objective.LATENCY)
    assert ilp.select(scaled).cost == dprs.select(scaled).cost


def _times(cost: Cost, scale: float) -> Cost:
    return Cost(latency=cost.latency * scale)


def test_the_plan_does_not_depend_on_the_hash_seed() -> None:
    outputs = set(printed_plans("[*ilp.k_best(problem, 2), *auto.k_best(problem, 2)]", 20))
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 20


ALTERNATIVES_A = Schema.parse("cpu:f32@nchw")


def difference(plan: Assignment, other: Assignment) -> float:
    """By how much ``other`` differs from ``plan``, from the definition."""
    totals: Counter[tuple[str, float]] = Counter()
    left: Counter[tuple[str, float]] = Counter()
    for layer, choice in plan.choices.items():
        key = choice.name, choice.cost.latency
        totals[key] += choice.cost.latency  # type: ignore[assignment]
        if other.choices[layer] != choice:
            left[key] += choice.cost.latency  # type: ignore[assignment]
    return math.sqrt(math.fsum(left[key] * totals[key] for key in totals))


@pytest.mark.parametrize("seed", range(12))
def test_each_plan_is_the_cheapest_that_differs_by_enough_from_those_before(layout_net: BuildNet, seed: int) -> None:
    problem = layout_net([[], [0], [1], [1], [2, 3]], choices=4, seed=seed)
    apart = Random(seed).uniform(2, 6)
    expected: list[float] = []
    chosen: list[Assignment] = []
    for each in exhaustive.k_best(problem, 2000):
        if all(difference(before, each.assignment) >= apart for before in chosen) and len(chosen) < 4:
            chosen.append(each.assignment)
            expected.append(each.cost)
    found = alternatives(problem, 4, apart)
    assert [each.cost for each in found] == pytest.approx(expected)
    assert found[0].optimal
    assert found[0].cost == exhaustive.select(problem).cost


def net(*costs: tuple[float, ...]) -> Problem:
    """Layers without edges, with choices of these costs."""
    choices = [
        tuple(Choice(f"c{n}", (), ALTERNATIVES_A, Cost(each, error=n)) for n, each in enumerate(own)) for own in costs
    ]
    return Problem(tuple(Node(f"n{index}", own) for index, own in enumerate(choices)), (), {})


def names(problem: Problem, apart: float, excess: float = 9.0, limits: Limits = UNLIMITED) -> list[str]:
    found = alternatives(problem, 5, apart, limits, excess=excess)
    return ["".join(choice.name[1] for choice in each.choices.values()) for each in found]


def test_layers_that_cost_little_make_no_other_plan() -> None:
    problem = net((10.0, 11.0), (0.1, 0.1001), (0.2, 0.2001))
    assert names(problem, 5) == ["000", "100"]
    assert names(problem, 0.15) == ["000", "001", "100", "101"]


def test_a_plan_that_costs_much_more_is_none() -> None:
    assert names(net((10.0, 11.0)), 5, excess=0.5) == ["0"]
    assert names(net((10.0, 11.0)), 11) == ["0"]


def test_layers_of_the_same_code_err_together() -> None:
    assert names(net((3.0, 3.1), (3.0, 3.1), (3.0, 3.1)), 8.9) == ["000", "111"]
    assert names(net((3.0, 3.1), (3.01, 3.11), (3.02, 3.12)), 8.9) == ["000"]


def test_plans_keep_to_the_limits() -> None:
    assert names(net((10.0, 11.0), (5.0, 5.5)), 4, limits=Limits(error=1)) == ["00", "01", "10"]


def test_without_time_there_are_none() -> None:
    assert alternatives(net((10.0, 11.0)), 2, 5, seconds=0.0) == []


LEAST_ERROR_A, LEAST_ERROR_B = Schema("cpu", "f32", "nchw"), Schema("cpu", "bf16", "nchw")
EDGE = Edge("x", "y", 0)
PROBLEM = Problem(
    (
        Node(
            "x",
            (
                Choice("fast", (), LEAST_ERROR_B, Cost(1.0, error=4.0)),
                Choice("exact", (), LEAST_ERROR_A, Cost(3.0, error=1.0)),
            ),
        ),
        Node(
            "y",
            (
                Choice("slow", (LEAST_ERROR_A,), LEAST_ERROR_A, Cost(5.0)),
                Choice("quick", (LEAST_ERROR_A,), LEAST_ERROR_A, Cost(2.0, memory=8.0)),
            ),
        ),
    ),
    (EDGE,),
    {(EDGE, LEAST_ERROR_B, LEAST_ERROR_A): Cost(0.5)},
)


def test_the_least_error_and_of_those_the_fastest() -> None:
    found = most_exact(PROBLEM)
    assert [found.choices[name].name for name in ("x", "y")] == ["exact", "quick"]
    assert (found.costs.error, found.cost, found.optimal) == (1.0, 5.0, True)


def test_other_limits_hold() -> None:
    assert most_exact(PROBLEM, Limits(memory=4.0)).choices["y"].name == "slow"
    with pytest.raises(InfeasibleError):
        most_exact(PROBLEM, Limits(error=0.5))


_PROGRAM = """
from sartor.tuning.selection.programming.highs_solver import HighsSolver
print("before")
HighsSolver([True, False], [])
print("after", flush=True)
"""


def test_the_solver_writes_nothing_to_the_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "before\nafter\n"


def test_the_solver_works_without_a_standard_output() -> None:
    program = f"import os\nos.close(1)\n{_PROGRAM.replace('print', 'str')}".replace(", flush=True", "")
    subprocess.run([sys.executable, "-c", program], check=True)

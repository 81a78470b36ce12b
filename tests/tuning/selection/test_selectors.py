"""The contract that every selector keeps, on random DAGs, against exhaustive search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive, random_search
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError, UsageError
from sartor.tuning import selection as package
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.heuristics import greedy, qlearning
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, Selector, evaluate
from sartor.tuning.selection.registry import SELECTORS
from tests.tuning.selection.all_selectors import ALL_SELECTORS, has_plan

BuildRandom = Callable[[Random], Problem]

A, B, C = (Schema.parse(f"cpu:f32@{layout}") for layout in ("nchw", "nhwc", "nchw16c"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_selector = pytest.mark.parametrize("select", ALL_SELECTORS.values(), ids=ALL_SELECTORS)


@pytest.fixture(autouse=True, scope="module")
def _few_episodes() -> Iterator[None]:
    """Enough for nets as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (qlearning, random_search):
            patch.setattr(module, "EPISODES", 200)
        yield


def _problem_within_limit(build: BuildRandom, rng: Random) -> Problem:
    problem = build(rng)
    assume(exhaustive.combinations(problem) <= 3000)
    return problem


def test_registry_lists_the_folder() -> None:
    folder = Path(str(package.__file__)).parent
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py")]
    modules = {path.name: import_module(".".join([package.__name__, *path.parts])) for path in paths}
    found = {stem: module.select for stem, module in modules.items() if hasattr(module, "select")}
    assert found == SELECTORS


@every_selector
@QUICK
@given(rng=RNG)
def test_contract(select: Selector, random_problem: BuildRandom, rng: Random) -> None:
    problem = _problem_within_limit(random_problem, rng)
    if not has_plan(problem):
        with pytest.raises(InfeasibleError, match="layer 'n"):
            select(problem)
        return
    best = exhaustive.select(problem).cost
    found = select(problem)
    costs = evaluate(problem, found.assignment)
    assert costs == found.costs
    assert found.cost == found.costs.latency
    assert found.lower_bound <= best <= found.cost
    assert not found.optimal or found.cost == best
    assert ALL_SELECTORS[found.solver] is select or select is auto.select


@settings(QUICK, max_examples=200)
@given(rng=RNG)
def test_dprs_is_exact(random_problem: BuildRandom, rng: Random) -> None:
    problem = _problem_within_limit(random_problem, rng)
    assume(has_plan(problem))
    found = dprs.select(problem)
    assert found.optimal
    assert found.cost == found.lower_bound == exhaustive.select(problem).cost <= greedy.select(problem).cost


@QUICK
@given(rng=RNG, k=st.integers(1, 12))
def test_k_best_are_the_cheapest_distinct_plans(random_problem: BuildRandom, rng: Random, k: int) -> None:
    problem = _problem_within_limit(random_problem, rng)
    assume(has_plan(problem))
    found = dprs.k_best(problem, k)
    expected = exhaustive.k_best(problem, k)
    assert [plan.cost for plan in found] == [plan.cost for plan in expected]
    assert len({_names(plan.assignment) for plan in found}) == len(found)
    for plan in found:
        assert evaluate(problem, plan.assignment) == plan.costs
        assert plan.optimal == (plan.cost == found[0].cost)
        assert plan.lower_bound == found[0].cost


def test_k_best_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        dprs.k_best(Problem((), (), {}), 0)


@every_selector
def test_empty_problem(select: Selector) -> None:
    assert select(Problem((), (), {})).cost == 0


@every_selector
def test_ties_go_to_the_first_choice(select: Selector) -> None:
    problem = _chain_with_equal_costs()
    assert {choice.name for choice in select(problem).choices.values()} == {"default"}


@every_selector
def test_the_objective_decides(select: Selector) -> None:
    fast, small = Choice("fast", (), A, Cost(1.0, 9.0, 9.0)), Choice("small", (), A, Cost(2.0, 1.0, 1.0))
    for objective, name in (
        (Objective.LATENCY, "fast"),
        (Objective.COLD, "small"),
        (Objective.MEMORY, "small"),
    ):
        problem = Problem((Node("x", (fast, small)),), (), {}, objective)
        found = select(problem)
        assert found.choices["x"].name == name
        assert found.cost == found.costs.value(objective)


@every_selector
def test_childnets_are_solved_from_the_inside(select: Selector) -> None:
    innermost = Problem((Node("gemm", (_free("slow", 5.0), _free("fast", 2.0))),), (), {})
    inner = Problem((Node("dense", (_free("direct", 4.0), _free("by gemm", 1.0, innermost))),), (), {})
    outer = Problem((Node("layer", (_free("plain", 4.0), _free("winograd", 0.5, inner))),), (), {})
    found = select(outer)
    assert found.cost == 3.5
    assert found.choices["layer"].name == "winograd"
    assert found.childnets["layer"].choices["dense"].name == "by gemm"
    assert found.childnets["layer"].childnets["dense"].choices["gemm"].name == "fast"


@every_selector
def test_a_choice_whose_childnet_has_no_plan_is_passed_over(select: Selector) -> None:
    edge = Edge("x", "y", 0)
    stuck = Problem((Node("x", (_free("x", 0.0),)), Node("y", (Choice("y", (B,), B, Cost()),))), (edge,), {})
    broken, sound = _free("broken", 0.0, stuck), _free("sound", 1.0)
    assert select(Problem((Node("layer", (broken, sound)),), (), {})).choices["layer"].name == "sound"
    with pytest.raises(InfeasibleError, match="layer 'layer'"):
        select(Problem((Node("layer", (broken,)),), (), {}))


@every_selector
def test_infeasible_names_the_layer(select: Selector) -> None:
    """Nothing converts to what the third layer reads."""
    edges = (Edge("in", "conv", 0), Edge("conv", "flatten", 0))
    nodes = (
        Node("in", (_free("in", 0.0),)),
        Node("conv", (Choice("nchw", (A,), A, Cost()), Choice("nhwc", (B,), B, Cost()))),
        Node("flatten", (Choice("only", (C,), C, Cost()),)),
    )
    with pytest.raises(InfeasibleError, match="layer 'flatten'") as caught:
        select(Problem(nodes, edges, {(edges[0], A, B): Cost()}))
    assert caught.value.exit_code == 5


@every_selector
def test_infeasible_although_every_edge_can_be_met(select: Selector) -> None:
    """x + x needs both schemas of x at once: arc consistency does not see it, only search does."""
    edges = (Edge("x", "left", 0), Edge("x", "right", 0), Edge("left", "add", 0), Edge("right", "add", 1))
    nodes = (
        Node("x", (_free("a", 0.0), Choice("b", (), B, Cost()))),
        Node("left", (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))),
        Node("right", (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))),
        Node("add", (Choice("ab", (A, B), A, Cost()), Choice("ba", (B, A), A, Cost()))),
    )
    with pytest.raises(InfeasibleError, match="layer 'add'"):
        select(Problem(nodes, edges, {}))


def test_greedy_backtracks_out_of_a_dead_end() -> None:
    """The cheap start can go on, but not all the way; the layer chosen last has no part in that."""
    edges = (
        Edge("x", "left", 0),
        Edge("x", "right", 0),
        Edge("left", "add", 0),
        Edge("right", "add", 1),
        Edge("bias", "add", 2),
    )
    nodes = (
        Node("x", (_free("cheap", 0.0), Choice("dear", (), B, Cost(9.0)))),
        Node("left", (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))),
        Node("right", (Choice("a", (A,), A, Cost()), Choice("b", (B,), B, Cost()))),
        _two_ways("bias"),
        Node("add", tuple(Choice(f"{p} + {q}", (p, q, A), A, Cost()) for p, q in ((A, B), (B, A), (B, B)))),
    )
    found = greedy.select(Problem(nodes, edges, {}))
    assert (found.choices["x"].name, found.cost) == ("dear", 9.0)


def test_greedy_is_greedy() -> None:
    """It takes the cheap first layer and pays for the adapt, where the optimum does not."""
    edge = Edge("x", "y", 0)
    nodes = (
        Node("x", (Choice("a", (), A, Cost(1.0)), Choice("b", (), B, Cost(2.0)))),
        Node("y", (Choice("b", (B,), B, Cost(1.0)),)),
    )
    problem = Problem(nodes, (edge,), {(edge, A, B): Cost(5.0)})
    assert (greedy.select(problem).cost, dprs.select(problem).cost) == (7.0, 3.0)
    assert not greedy.select(problem).optimal


def test_exhaustive_counts_and_refuses() -> None:
    inner = Problem((Node("x", (_free("a", 0.0), _free("b", 1.0))),), (), {})
    problem = Problem((Node("x", (_free("plain", 0.0), _free("net", 0.0, inner))), _two_ways("y")), (), {})
    assert exhaustive.combinations(problem) == 6
    assert exhaustive.select(problem, limit=6).cost == 0
    with pytest.raises(UsageError, match="at most 5 combinations, but there are 6"):
        exhaustive.select(problem, limit=5)


def _names(plan: Assignment) -> tuple[object, ...]:
    inside = tuple((layer, _names(child)) for layer, child in plan.childnets.items())
    return (*((layer, choice.name) for layer, choice in plan.choices.items()), inside)


def _free(name: str, latency: float, childnet: Problem | None = None) -> Choice:
    return Choice(name, (), A, Cost(latency), childnet)


def _two_ways(name: str) -> Node:
    return Node(name, (_free("first", 0.0), _free("second", 0.0)))


def _chain_with_equal_costs() -> Problem:
    nodes = [Node("n0", (Choice("default", (), A, Cost(1.0)), Choice("other", (), B, Cost(1.0))))]
    edges = []
    for index in range(1, 5):
        edges.append(Edge(f"n{index - 1}", f"n{index}", 0))
        offers = (Choice("default", (A,), A, Cost(1.0)), Choice("other", (B,), B, Cost(1.0)))
        nodes.append(Node(f"n{index}", offers))
    adapts = {(edge, *pair): Cost() for edge in edges for pair in ((A, B), (B, A))}
    return Problem(tuple(nodes), tuple(edges), adapts)

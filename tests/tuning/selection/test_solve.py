"""One entry for all solvers: which of them keep limits, and what least memory means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError, UsageError
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity, held_bytes, measures, shared_bytes
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.registry import SELECTORS
from sartor.tuning.selection.solve import check_solver, solve

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]

A = Schema("cpu", "f32", "nchw")


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_every_solver_is_reached_by_its_name(layout_net: BuildNet, name: str) -> None:
    problem = layout_net([[], [0], [1], [2, 0]])
    assert solve(problem, name)[0].cost >= exhaustive.select(problem).cost


def test_what_a_solver_cannot_keep_is_refused() -> None:
    with pytest.raises(UsageError, match="'greedy' knows no limit of memory; choose auto or ilp"):
        check_solver("greedy", Objective.LATENCY, Limits(memory=1.0))
    with pytest.raises(UsageError, match="'dprs' adds costs up"):
        check_solver("dprs", Objective.MEMORY)
    with pytest.raises(UsageError, match="'magic' is no selector"):
        check_solver("magic", Objective.LATENCY)
    check_solver("ilp", Objective.MEMORY, Limits(1.0, 1.0))
    check_solver("greedy", Objective.COLD)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=st.builds(Random, st.integers(0, 2**32 - 1)))
def test_least_memory_is_the_least_of_all_plans_and_then_the_fastest(random_problem: BuildRandom, rng: Random) -> None:
    problem = replace(_flat(random_problem(rng), rng), objective=Objective.MEMORY)
    assume(exhaustive.combinations(problem) <= 3000)
    try:
        plans = exhaustive.k_best(problem, 3000)
    except InfeasibleError:
        assume(False)
    needs = [measures(problem, plan.assignment) for plan in plans]
    least = min((need[Quantity.MEMORY], need[Quantity.LATENCY]) for need in needs)
    (found,) = solve(problem, "auto")
    needed = measures(problem, found.assignment)
    assert (needed[Quantity.MEMORY], needed[Quantity.LATENCY]) == least
    assert (found.cost, found.lower_bound, found.optimal) == (least[0], least[0], True)


def _flat(problem: Problem, rng: Random) -> Problem:
    """Sizes for all outputs, and no childnets, whose objective is fixed."""

    def choice(each: Choice) -> Choice:
        return replace(each, childnet=None, scratch=float(rng.choice((0, 0, 4))))

    return replace(
        problem,
        nodes=tuple(
            replace(node, choices=tuple(map(choice, node.choices)), output_bytes=float(rng.randint(0, 9)))
            for node in problem.nodes
        ),
    )


def test_a_weight_that_several_layers_use_is_there_once() -> None:
    packed, plain = (Choice(name, (), A, Cost(cost), shared=((name, 10.0),)) for name, cost in (("p", 1.0), ("q", 2.0)))
    large = Choice("large", (), A, Cost(0.5, memory=100.0))
    problem = Problem((Node("x", (packed, plain, large)), Node("y", (plain, large))), (), {})
    for limit, latency, shared in ((20, 3.0, 20), (19, 4.0, 10)):
        (found,) = solve(problem, "auto", limits=Limits(memory=limit))
        assert (found.cost, shared_bytes(found.assignment)) == (latency, shared)
    with pytest.raises(InfeasibleError, match="at least 10 B"):
        solve(problem, "auto", limits=Limits(memory=9))


def test_what_is_kept_is_there_all_the_time() -> None:
    nodes = tuple(
        Node(name, (Choice("c", (A,) * arity, A, Cost()),), size, kept)
        for name, arity, size, kept in (
            ("input", 0, 5.0, True),
            ("a", 1, 7.0, False),
            ("b", 1, 11.0, False),
            ("output", 1, 2.0, True),
        )
    )
    edges = (Edge("input", "a", 0), Edge("a", "b", 0), Edge("b", "output", 0))
    assert held_bytes(Problem(nodes, edges, {})) == [7.0, 14.0, 25.0, 18.0]

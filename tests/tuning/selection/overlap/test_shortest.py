"""The plan with the shortest first inference, against all plans of small nets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.overlap.queues import Queues, queues_of
from sartor.tuning.selection.overlap.shortest import fastest, shortest
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import Limits, Quantity, measures, within
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem

PLAIN = Schema("cpu", "f32", "nchw")


def test_the_time_is_that_of_two_machines() -> None:
    queues = Queues((3.0, 1.0, 5.0), (2.0, 4.0, 1.0))
    # Reading ends at 3, 4 and 9; executing at 5, 9 and 10.
    assert queues.seconds == 10.0
    assert (queues.least, queues.most) == (9.0, 16.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_the_time_is_the_largest_of_the_sums_and_within_its_bounds(pairs: list[tuple[int, int]]) -> None:
    reading, executing = zip(*pairs, strict=True)
    queues = Queues(reading, executing)
    sums = [sum(reading[: last + 1]) + sum(executing[last:]) for last in range(len(pairs))]
    assert queues.seconds == max(sums)
    assert queues.least <= queues.seconds <= queues.most


def chain(*layers: tuple[tuple[float, float], ...]) -> Problem:
    """A chain of layers, of which each has choices with seconds of reading and of executing."""
    nodes = [Node("in", (Choice("given", (), PLAIN, Cost()),))]
    for index, layer in enumerate(layers):
        choices = (
            Choice(f"c{number}", (PLAIN,), PLAIN, Cost(latency=executing, cold=reading))
            for number, (reading, executing) in enumerate(layer)
        )
        nodes.append(Node(f"l{index}", tuple(choices)))
    edges = [Edge(one.name, other.name, 0) for one, other in pairwise(nodes)]
    return Problem(tuple(nodes), tuple(edges), {})


def test_where_reading_hides_behind_executing_the_fastest_kernel_wins() -> None:
    """By the sum the small kernel wins in both layers (6 against 7); overlapped it wins only where nothing is
    executed meanwhile."""
    problem = chain(((3.0, 4.0), (1.0, 5.0)), ((3.0, 4.0), (1.0, 5.0)))
    found = shortest(problem)
    assert found.proven
    assert [found.plan.choices[name].name for name in ("l0", "l1")] == ["c1", "c0"]
    assert found.seconds == found.bound == 1.0 + 5.0 + 4.0


def test_what_the_first_execution_takes_longer_is_executed() -> None:
    """Later inferences are faster by the first kernel; its first execution takes what makes the second one win."""
    layer = tuple(
        Choice(name, (PLAIN,), PLAIN, Cost(latency=latency, cold=1.0, starting=starting))
        for name, latency, starting in (("quick", 3.0, 2.0), ("steady", 4.0, 0.5))
    )
    given = chain(((1.0, 1.0),))
    problem = replace(given, nodes=(given.nodes[0], Node("l0", layer)))
    found = shortest(problem)
    assert found.plan.choices["l0"].name == "steady"
    assert found.seconds == 1.0 + 4.0 + 0.5
    assert fastest(problem).plan.choices["l0"].name == "quick"


def _with_reading(problem: Problem, rng: Random) -> Problem:
    """The problem with seconds of reading and of starting for each choice, also those of childnets."""

    def read(choice: Choice) -> Choice:
        inside = None if choice.childnet is None else _with_reading(choice.childnet, rng)
        cost = replace(choice.cost, cold=float(rng.randint(0, 20)), starting=float(rng.randint(0, 3)))
        return replace(choice, cost=cost, childnet=inside)

    nodes = (replace(node, choices=tuple(map(read, node.choices))) for node in problem.nodes)
    return replace(problem, nodes=tuple(nodes))


@settings(max_examples=60, deadline=None)
@given(rng=st.builds(Random, st.integers(0, 2**32 - 1)))
def test_no_plan_is_shorter(random_problem: Callable[[Random], Problem], rng: Random) -> None:
    problem = _with_reading(random_problem(rng), rng)
    assume(exhaustive.combinations(problem) <= 500)
    try:
        plans = [each.assignment for each in exhaustive.k_best(problem, 500)]
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            shortest(problem)
        return
    found = shortest(problem)
    best = min(queues_of(problem, plan).seconds for plan in plans)
    assert found.proven
    assert found.seconds == pytest.approx(best, rel=1e-9)
    memory = sorted(measures(problem, plan)[Quantity.MEMORY] for plan in plans)[len(plans) // 2]
    allowed = [plan for plan in plans if within(measures(problem, plan), {Quantity.MEMORY: memory})]
    limited = shortest(problem, Limits(memory=memory))
    assert limited.seconds == pytest.approx(min(queues_of(problem, plan).seconds for plan in allowed), rel=1e-9)
    assert measures(problem, limited.plan)[Quantity.MEMORY] <= memory

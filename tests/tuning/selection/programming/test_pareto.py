"""Pareto fronts against all plans there are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import Limits, Quantity, measures
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.programming.bounded_search import BoundedSearch, Nothing
from sartor.tuning.selection.programming.pareto import SolvedFront, pareto_front

BuildRandom = Callable[[Random], Problem]

A, B = (Schema.parse(f"cpu:f32@{layout}") for layout in ("nchw", "nhwc"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))
LATENCY, MEMORY = Quantity.LATENCY, Quantity.MEMORY


def _values(front: SolvedFront) -> list[tuple[float, float]]:
    return [(point.needed[front.first], point.needed[front.second]) for point in front.points]


def _undominated(values: set[tuple[float, float]]) -> list[tuple[float, float]]:
    return sorted(one for one in values if not any(a <= one[0] and b <= one[1] and (a, b) != one for a, b in values))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=RNG)
def test_it_is_the_front_of_all_plans(random_problem: BuildRandom, rng: Random) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 1000)
    try:
        plans = exhaustive.k_best(problem, 1000)
    except InfeasibleError:
        with pytest.raises(InfeasibleError, match="layer 'n"):
            pareto_front(problem, LATENCY, MEMORY)
        return
    needs = [measures(problem, plan.assignment) for plan in plans]
    expected = _undominated({(needed[LATENCY], needed[MEMORY]) for needed in needs})
    front = pareto_front(problem, LATENCY, MEMORY, most=40)
    assert _values(front) == expected
    assert front.complete
    for point in front.points:
        assert point.proven
        assert measures(problem, point.plan) == point.needed


@pytest.mark.parametrize("most", [2, 3, 5, 9])
def test_of_a_long_front_some_points_are_taken(most: int) -> None:
    """A front of 33 plans: every layer trades one second for its own number of bytes."""
    problem = _trades(32)
    everything = _values(pareto_front(problem, LATENCY, MEMORY, most=40))
    assert len(everything) == 33
    front = pareto_front(problem, LATENCY, MEMORY, most=most)
    assert (len(front.points), front.complete) == (most, False)
    assert set(_values(front)) <= set(everything)
    assert _values(front)[0] == everything[0]
    assert _values(front)[-1] == everything[-1]
    assert all(one[0] < other[0] and one[1] > other[1] for one, other in pairwise(_values(front)))


def test_the_other_order_is_the_same_front_backwards() -> None:
    problem = _trades(6)
    there = _values(pareto_front(problem, LATENCY, MEMORY))
    back = _values(pareto_front(problem, MEMORY, LATENCY))
    assert [(b, a) for a, b in reversed(there)] == back


def test_other_quantities_and_limits() -> None:
    problem = _trades(6)
    front = pareto_front(problem, Quantity.COLD, Quantity.ERROR, Limits(memory=10.0))
    assert front.complete
    assert all(point.needed[MEMORY] <= 10.0 for point in front.points)
    assert len(front.points) < len(pareto_front(problem, Quantity.COLD, Quantity.ERROR).points)
    with pytest.raises(InfeasibleError, match="memory limit"):
        pareto_front(Problem((Node("x", (_choice("x", 1.0, 9.0),)),), (), {}), LATENCY, MEMORY, Limits(memory=8.0))


def test_a_single_best_plan_is_a_front_of_one() -> None:
    front = pareto_front(Problem((Node("x", (_choice("x", 1.0, 9.0),)),), (), {}), LATENCY, MEMORY)
    assert (_values(front), front.complete) == ([(1.0, 9.0)], True)


def test_no_time_is_not_taken_for_infeasible() -> None:
    rng = Random(1)
    sizes = [[rng.randint(1, 10**6) for _ in range(3)] for _ in range(40)]
    nodes = tuple(
        Node(f"n{index}", tuple(_choice(f"{size} B", 1e6 / size, float(size)) for size in sorted(three)))
        for index, three in enumerate(sizes)
    )
    limits = Limits(memory=1.5 * sum(map(min, sizes)))
    with pytest.raises(InfeasibleError, match="in the time allowed"):
        pareto_front(Problem(nodes, (), {}), LATENCY, MEMORY, limits, seconds=0.0)


@pytest.mark.parametrize("proven", [True, False])
def test_a_front_is_complete_only_if_nothing_was_given_up(proven: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches between the ends find nothing, either as nothing is there or as time is up."""
    find, asked = BoundedSearch.least_then, list[object]()

    def least_then(search: BoundedSearch, *arguments: Any) -> Any:
        asked.append(arguments)
        return find(search, *arguments) if len(asked) <= 2 else Nothing(0.0, proven)

    monkeypatch.setattr(BoundedSearch, "least_then", least_then)
    choices = tuple(_choice(str(index), float(index), 9.0 - index) for index in range(1, 6))
    front = pareto_front(Problem((Node("x", choices),), (), {}), LATENCY, MEMORY)
    assert len(asked) > 2
    assert (_values(front), front.complete) == ([(1.0, 8.0), (5.0, 4.0)], proven)


@pytest.mark.parametrize(("second", "most"), [(LATENCY, 5), (MEMORY, 1)])
def test_what_is_no_front_is_refused(second: Quantity, most: int) -> None:
    with pytest.raises(ValueError, match="two quantities"):
        pareto_front(_trades(2), LATENCY, second, most=most)


def _choice(name: str, latency: float, memory: float) -> Choice:
    return Choice(name, (), A, Cost(latency, memory / 10, memory, latency / 100))


def _trades(layers: int) -> Problem:
    """A chain whose layers can be made a second slower for 1, 2, 3, … bytes less; adapts are never needed."""
    nodes, edges = [], []
    for index in range(layers):
        inputs = (A,) * bool(index)
        fast = Choice("fast", inputs, A, Cost(1.0, 0.5, index + 1.0, 0.5))
        small = Choice("small", inputs, A, Cost(2.0, 0.0, 0.0, 0.0))
        nodes.append(Node(f"n{index}", (fast, small)))
        if index:
            edges.append(Edge(f"n{index - 1}", f"n{index}", 0))
    return Problem(tuple(nodes), tuple(edges), {})

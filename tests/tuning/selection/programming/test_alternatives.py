"""Plans that differ in what costs, against a search through all plans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits
from sartor.tuning.selection.problem.problem import Choice, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment
from sartor.tuning.selection.programming.alternatives import alternatives

BuildNet = Callable[..., Problem]
A = Schema.parse("cpu:f32@nchw")


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
    choices = [tuple(Choice(f"c{n}", (), A, Cost(each, error=n)) for n, each in enumerate(own)) for own in costs]
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

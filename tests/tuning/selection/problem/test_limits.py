"""Limits: what a plan needs, the best plan that needs no more, and which limit cannot be met."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity, held_bytes, measures, peak_bytes, within
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.problem.selection import Assignment, Selection
from sartor.tuning.selection.programming import ilp
from sartor.tuning.selection.programming.bounded_search import BoundedSearch
from sartor.tuning.selection.programming.infeasible import explain
from sartor.tuning.selection.programming.least_memory import smallest

BuildRandom = Callable[[Random], Problem]

A, B = (Schema.parse(f"cpu:f32@{layout}") for layout in ("nchw", "nhwc"))
RNG = st.builds(Random, st.integers(0, 2**32 - 1))
_WEIGHTS = (("v", 3.0), ("w", 7.0))
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _sized(problem: Problem, rng: Random) -> Problem:
    """The problem with random sizes, scratch, errors and shared weights, childnets too; all small integers."""

    def choice(each: Choice) -> Choice:
        return replace(
            each,
            cost=replace(each.cost, error=float(rng.randint(0, 5)), repeated=float(rng.choice((0, 0, 2, 7)))),
            childnet=None if each.childnet is None else _sized(each.childnet, rng),
            scratch=float(rng.choice((0, 0, 3, 8))),
            shared=tuple(weight for weight in _WEIGHTS if rng.random() < 0.2),
        )

    def stored(node: Node) -> tuple[tuple[Schema, float], ...]:
        """Other sizes of the output in some of the schemas that choices write or read."""
        schemas = {schema for each in problem.nodes for one in each.choices for schema in (one.output, *one.inputs)}
        return tuple((schema, float(rng.randint(0, 9))) for schema in sorted(schemas) if rng.random() < 0.4)

    nodes = tuple(
        replace(
            node,
            choices=tuple(map(choice, node.choices)),
            output_bytes=float(rng.randint(0, 9)),
            stored=stored(node),
        )
        for node in problem.nodes
    )
    return replace(problem, nodes=nodes)


def _all_plans(problem: Problem) -> list[Selection]:
    assume(exhaustive.combinations(problem) <= 3000)
    try:
        return exhaustive.k_best(problem, 3000)
    except InfeasibleError:
        assume(False)
        return []


@QUICK
@given(rng=RNG)
def test_the_best_plan_within_limits_is_the_exhaustive_one(random_problem: BuildRandom, rng: Random) -> None:
    problem = _sized(random_problem(rng), rng)
    plans = _all_plans(problem)
    needs = [measures(problem, plan.assignment) for plan in plans]
    pattern = rng.choice(needs)
    limits = Limits(
        rng.choice((None, max(pattern[Quantity.MEMORY] - rng.choice((0, 0, 1, 5)), 0.0))),
        rng.choice((None, max(pattern[Quantity.ERROR] - rng.choice((0, 0, 1, 3)), 0.0))),
        rng.choice((None, None, max(pattern[Quantity.REPEATED] - rng.choice((0, 0, 1, 5)), 0.0))),
    )
    allowed = [plan.cost for plan, needed in zip(plans, needs, strict=True) if within(needed, limits.bounds)]
    if not allowed:
        with pytest.raises(InfeasibleError, match="limit"):
            ilp.select_within(problem, limits)
        return
    found = ilp.select_within(problem, limits)
    assert within(measures(problem, found.assignment), limits.bounds)
    assert found.optimal
    assert found.cost == min(allowed)
    assert [plan.cost for plan in ilp.k_best(problem, 4, limits)] == sorted(allowed)[:4]


@settings(QUICK, max_examples=40)
@given(rng=RNG)
def test_the_smallest_feasible_limit_and_one_just_below(random_problem: BuildRandom, rng: Random) -> None:
    problem = _sized(random_problem(rng), rng)
    needs = [measures(problem, plan.assignment) for plan in _all_plans(problem)]
    least = min(needed[Quantity.MEMORY] for needed in needs)
    found = ilp.select_within(problem, Limits(memory=least))
    assert measures(problem, found.assignment)[Quantity.MEMORY] == least
    assume(least >= 1)
    with pytest.raises(InfeasibleError, match=f"at least {least:.0f} B"):
        ilp.select_within(problem, Limits(memory=least - 1))


def test_memory_is_weights_and_the_peak_of_what_is_live() -> None:
    problem = _diamond()
    assert held_bytes(problem) == [100.0, 150.0, 157.0, 58.0]
    plain = _plan(problem, x="a", left="a", right="a", add="a")
    assert peak_bytes(problem, plain) == 157 + 3
    assert measures(problem, plain)[Quantity.MEMORY] == 160 + 40
    # The copy of x in another layout lies beside x, which is read by the other branch too.
    assert peak_bytes(problem, _plan(problem, x="a", left="b", right="a", add="a")) == 150 + 100
    assert peak_bytes(problem, _plan(problem, x="b", left="b", right="a", add="a")) == 157 + 3 + 100


def test_a_limit_makes_it_choose_what_needs_less() -> None:
    problem = _diamond()
    best = ilp.select(problem)
    assert {name: choice.name for name, choice in best.choices.items()} == dict.fromkeys(best.choices, "b")
    needed = measures(problem, best.assignment)[Quantity.MEMORY]
    assert ilp.select_within(problem, Limits(memory=needed)).cost == best.cost
    less = ilp.select_within(problem, Limits(memory=needed - 1))
    assert less.cost > best.cost
    assert less.optimal
    assert measures(problem, less.assignment)[Quantity.MEMORY] < needed


def test_second_forms_of_weights_are_those_that_save_most_within_their_bytes() -> None:
    def layer(name: str, saved: float, size: float) -> Node:
        return Node(name, (Choice("once", (), A, Cost(9.0)), Choice("twice", (), A, Cost(9.0 - saved, repeated=size))))

    problem = Problem((layer("large", 5.0, 60.0), layer("one", 3.0, 40.0), layer("two", 3.5, 50.0)), (), {})
    chosen = {
        bound: [
            name
            for name, choice in auto.k_best(problem, 1, Limits(repeated=bound))[0].choices.items()
            if choice.name == "twice"
        ]
        for bound in (0.0, 45.0, 95.0, 150.0)
    }
    assert chosen == {0.0: [], 45.0: ["one"], 95.0: ["one", "two"], 150.0: ["large", "one", "two"]}


def test_a_childnets_peak_is_scratch_of_its_layer() -> None:
    inner = Problem((Node("a", (_free("a"),), 30.0), Node("b", (_free("b"),), 50.0)), (), {})
    layer = Node("layer", (Choice("net", (), A, Cost(1.0, memory=5.0), inner), Choice("plain", (), A, Cost(2.0))), 7.0)
    problem = Problem((layer,), (), {})
    found = ilp.select_within(problem, Limits(memory=62.0))
    assert found.choices["layer"].name == "net"
    assert measures(problem, found.assignment)[Quantity.MEMORY] == 5 + 7 + 50
    assert ilp.select_within(problem, Limits(memory=61.0)).choices["layer"].name == "plain"


def test_large_nets_are_bounded_to_the_byte() -> None:
    """Weights of a hundred megabytes in all, where a solver's relative tolerance is more than a byte."""
    problem = _many_sizes(60)
    needed = measures(problem, ilp.select(problem).assignment)[Quantity.MEMORY]
    assert measures(problem, ilp.select_within(problem, Limits(needed)).assignment)[Quantity.MEMORY] == needed
    less = measures(problem, ilp.select_within(problem, Limits(needed - 1)).assignment)[Quantity.MEMORY]
    assert less < needed
    least = _least(problem)
    assert measures(problem, ilp.select_within(problem, Limits(least)).assignment)[Quantity.MEMORY] == least
    with pytest.raises(InfeasibleError, match=f"needs at least {least:.0f} B "):
        ilp.select_within(problem, Limits(least - 1))


def test_an_error_budget_is_met_exactly_or_refused() -> None:
    errors = [1.7e-6 * index + 3e-7 for index in range(1, 9)]
    nodes = tuple(
        Node(f"n{index}", (_free("exact", 2.0, error), _free("fast", 1.0, 3 * error)))
        for index, error in enumerate(errors)
    )
    problem = Problem(nodes, (), {})
    least = _plan_error(problem, "exact")
    found = ilp.select_within(problem, Limits(error=least))
    assert (found.cost, found.costs.error) == (16.0, least)
    with pytest.raises(InfeasibleError, match="the error limit of") as caught:
        ilp.select_within(problem, Limits(error=math.nextafter(least, 0)))
    assert f"needs at least {least!r}" in str(caught.value)
    assert caught.value.exit_code == 5


def test_limits_that_cannot_be_met_together_say_so() -> None:
    small, exact = (
        Choice("small", (), A, Cost(1.0, memory=1.0, error=9.0)),
        Choice("exact", (), A, Cost(1.0, 0, 9.0, 1)),
    )
    problem = Problem((Node("x", (small, exact)),), (), {})
    assert ilp.select_within(problem, Limits(9.0, 1.0)).choices["x"].name == "exact"
    with pytest.raises(InfeasibleError, match="each be met, but not together") as caught:
        ilp.select_within(problem, Limits(8.0, 8.0))
    assert "at least 9 B (0.00 MiB) of memory or 9.0 of error" in str(caught.value)


def test_the_nearest_value_keeps_the_other_limit_if_it_can() -> None:
    choices = (Choice("small", (), A, Cost(1.0, 0.0, 5.0, 9.0)), Choice("exact", (), A, Cost(1.0, 0.0, 9.0, 1.0)))
    problem = Problem((Node("x", choices),), (), {})
    with pytest.raises(InfeasibleError, match=r"memory limit .* meets the limit of error needs at least 9 B"):
        ilp.select_within(problem, Limits(4.0, 8.0))
    with pytest.raises(InfeasibleError, match=r"any plan needs at least 5 B .*; .* any plan needs at least 1\.0"):
        ilp.select_within(problem, Limits(4.0, 0.5))


def test_a_net_without_any_plan_names_the_layer_whatever_the_limits() -> None:
    edge = Edge("x", "y", 0)
    problem = Problem((Node("x", (_free("x"),)), Node("y", (Choice("y", (B,), B, Cost()),))), (edge,), {})
    with pytest.raises(InfeasibleError, match="layer 'y'"):
        ilp.select_within(problem, Limits(memory=0.0))


def test_no_time_is_not_taken_for_infeasible() -> None:
    problem = _many_sizes(40)
    with pytest.raises(InfeasibleError, match="in the time allowed"):
        ilp.select_within(problem, Limits(_least(problem) * 1.5), seconds=0.0)


def test_nearest_limits_are_not_looked_for_without_end() -> None:
    problem = _many_sizes(40)
    limits = Limits(memory=_least(problem) - 1)
    assert set(explain(BoundedSearch(problem, limits.bounds), limits).nearest) == {Quantity.MEMORY}
    late = explain(BoundedSearch(problem, limits.bounds), limits, seconds=0.0)
    assert late.nearest == {}
    assert re.match(r"no plan keeps to \d+ B \(.* MiB\) of memory; the nearest .* not found in time", str(late))


def test_the_least_memory_is_not_proven_without_time() -> None:
    problem = _many_sizes(40)
    found = smallest(problem, seconds=0.0)
    assert not found.optimal
    assert found.lower_bound <= _least(problem) <= found.cost
    with pytest.raises(InfeasibleError, match=r"no plan within .* B .* of memory was found in the time allowed"):
        smallest(problem, Limits(memory=_least(problem) * 1.5), seconds=0.0)


@pytest.mark.parametrize("limits", [{"memory": -1.0}, {"error": math.nan}])
def test_a_limit_is_a_number_from_0_up(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not a number from 0 up"):
        Limits(**limits)


def _many_sizes(layers: int) -> Problem:
    """Every layer is the faster the more bytes its weights have; up to a megabyte each."""
    rng = Random(3)
    return Problem(tuple(_with_sizes(f"n{index}", rng) for index in range(layers)), (), {})


def _with_sizes(name: str, rng: Random) -> Node:
    sizes = sorted(rng.randint(1, 10**6) for _ in range(3))
    choices = tuple(Choice(f"{size} B", (), A, Cost(1.0 / size, memory=float(size))) for size in sizes)
    return Node(name, choices, float(rng.randint(1, 10**6)))


def _least(problem: Problem) -> float:
    plan = Assignment({node.name: min(node.choices, key=lambda choice: choice.cost.memory) for node in problem.nodes})
    return measures(problem, plan)[Quantity.MEMORY]


def _plan_error(problem: Problem, name: str) -> float:
    plan = _plan(problem, **{node.name: name for node in problem.nodes})
    return measures(problem, plan)[Quantity.ERROR]


def _plan(problem: Problem, **names: str) -> Assignment:
    return Assignment(
        {
            node.name: next(choice for choice in node.choices if choice.name == names[node.name])
            for node in problem.nodes
        }
    )


def _free(name: str, latency: float = 0.0, error: float = 0.0) -> Choice:
    return Choice(name, (), A, Cost(latency, error=error))


def _diamond() -> Problem:
    """x (100 bytes) feeds two branches (50 and 7 bytes), which add (1 byte) joins; b is faster and needs more."""
    edges = (Edge("x", "left", 0), Edge("x", "right", 0), Edge("left", "add", 0), Edge("right", "add", 1))

    def both(arity: int, scratch: float = 0.0) -> tuple[Choice, ...]:
        return (
            Choice("a", (A,) * arity, A, Cost(5.0, memory=10.0), None, scratch),
            Choice("b", (B,) * arity, B, Cost(1.0, memory=60.0), None, 0.0),
        )

    nodes = (
        Node("x", both(0), 100.0),
        Node("left", both(1), 50.0),
        Node("right", both(1, 3.0), 7.0),
        Node("add", both(2), 1.0),
    )
    adapts = {(edge, *pair): Cost(1.0) for edge in edges for pair in ((A, B), (B, A))}
    return Problem(nodes, edges, adapts)


def test_a_layer_that_holds_most_may_hold_less_in_another_type() -> None:
    """Then another layer, of which nothing depends on choices, decides."""
    narrow, narrower = (Schema.parse(f"cpu:{dtype}@nchw") for dtype in ("bf16", "i8"))
    first = Node(
        "a",
        (
            Choice("full", (), A, Cost(1.0)),
            Choice("narrow", (), narrow, Cost(1.0)),
            Choice("narrower", (), narrower, Cost(1.0, memory=5.0)),
        ),
        output_bytes=100.0,
        stored=((narrow, 20.0), (narrower, 10.0)),
    )
    second = Node("b", tuple(Choice(str(each), (each,), A, Cost(1.0)) for each in (A, narrow, narrower)), 50.0)
    third = Node("c", (Choice("only", (A,), A, Cost(1.0)),), 45.0)
    problem = Problem((first, second, third), (Edge("a", "b", 0), Edge("b", "c", 0)), {}, Objective.LATENCY)
    found = smallest(problem)
    assert (found.cost, found.assignment.choices["a"].name, found.optimal) == (95.0, "narrow", True)

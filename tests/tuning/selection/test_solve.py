"""One entry for all solvers, the default one, and the plan with the least regret over several cases."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError, UsageError
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import order
from sartor.tuning.selection.problem.cost import Cost, Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity, held_bytes, measures, shared_bytes
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.programming import ilp
from sartor.tuning.selection.registry import SELECTORS
from sartor.tuning.selection.regret import least_regret
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


SCHEMA = Schema("cpu", "f32", "nchw")
RNG = st.builds(Random, st.integers(0, 2**32 - 1))


@pytest.fixture
def wide(layout_net: BuildNet) -> Problem:
    """Every layer reads all before it: no order of DPRS's tables is narrow."""
    return layout_net([list(range(layer)) for layer in range(20)], schemas=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=RNG, cramped=st.booleans())
@example(rng=Random(2097152), cramped=True).via("the tables of shared conversions do not fit")
@example(rng=Random(2921 * 7919), cramped=True).via("the options that are not dominated fit, all options do not")
def test_it_is_exact_where_dprs_is_and_where_it_is_not(random_problem: BuildRandom, rng: Random, cramped: bool) -> None:
    problem = random_problem(rng)
    assume(exhaustive.combinations(problem) <= 3000)
    try:
        expected = exhaustive.k_best(problem, 4)
    except InfeasibleError:
        with pytest.raises(InfeasibleError, match="layer 'n"):
            auto.select(problem)
        return
    with pytest.MonkeyPatch.context() as patch:
        if cramped:
            patch.setattr(order, "REORDER_ABOVE", 0)
            patch.setattr(order, "JOIN_LIMIT", 8)
        found = auto.k_best(problem, 4)
    assert found[0].optimal
    assert [plan.cost for plan in found] == [plan.cost for plan in expected]


def test_a_narrow_net_is_for_dprs(layout_net: BuildNet, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = auto.select(layout_net([[], [0], [1], [2, 0]]))
    assert (found.solver, found.optimal, caplog.text) == ("dprs", True, "")


def test_a_wide_net_is_for_the_integer_program(wide: Problem, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = auto.k_best(wide, 2)
    assert (found[0].solver, found[0].optimal) == ("ilp", True)
    assert found[0].cost <= found[1].cost
    assert [record.getMessage() for record in _said(caplog)] == [
        "auto: dprs gave no proof: none of its orders fits into memory"
    ]


def test_without_time_it_goes_down_the_ladder_aloud(wide: Problem, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=auto.__name__):
        found = auto.k_best(wide, 2, seconds=0.0)
    assert not found[0].optimal
    assert found[0].lower_bound <= ilp.select(wide).cost <= found[0].cost <= found[1].cost
    steps = [record.getMessage().split(":")[1].split(" gave")[0].strip() for record in _said(caplog)]
    assert steps == ["dprs", "ilp", "pbqp", "conditioned dprs"]
    assert all(plan.lower_bound == found[0].lower_bound for plan in found)


def test_tables_that_take_too_long_are_not_built(layout_net: BuildNet, caplog: pytest.LogCaptureFixture) -> None:
    problem = layout_net([[], [0], [1], [2, 0]])
    with caplog.at_level(logging.WARNING):
        auto.select(problem)
        auto.k_best(problem, 1, seconds=0.0)
    assert "entries would take about" in caplog.text


def test_only_limits_that_bind_are_for_the_integer_program() -> None:
    choices = (Choice("fast", (), SCHEMA, Cost(1.0, memory=9.0)), Choice("small", (), SCHEMA, Cost(2.0, memory=5.0)))
    problem = Problem((Node("x", choices), Node("y", choices)), (), {})
    for memory, solver, cost in ((18, "dprs", 2.0), (17, "ilp", 3.0), (13, "ilp", 4.0)):
        found = auto.k_best(problem, 1, Limits(memory=memory))[0]
        assert (found.solver, found.optimal, found.cost) == (solver, True, cost)
        assert measures(problem, found.assignment)[Quantity.MEMORY] <= memory


def test_at_least_one_plan_is_asked_for() -> None:
    with pytest.raises(ValueError, match="at least one"):
        auto.k_best(Problem((), (), {}), 0)


def _said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == auto.__name__]


Plans = Sequence[tuple[float, ...]]


def finding(plans: Plans) -> Callable[[Sequence[float]], tuple[int, tuple[float, ...]]]:
    def find(weights: Sequence[float]) -> tuple[int, tuple[float, ...]]:
        assert sum(weights) == pytest.approx(1)
        best = min(range(len(plans)), key=lambda plan: float(np.dot(weights, plans[plan])))
        return best, plans[best]

    return find


def sums(layers: Sequence[Plans]) -> Plans:
    """The seconds of each combination of the layers' choices."""
    return [tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(*layers)]


def test_a_plan_that_is_best_for_no_case_has_the_least_regret() -> None:
    # Seconds of cases differ by orders of magnitude, ratios do not.
    plans = [(1.0, 3000.0), (3.0, 1000.0), (1.5, 1500.0)]
    found = least_regret(finding(plans), 2)
    assert (found.plan, found.singles, found.ratios) == (2, (0, 1), (1.5, 1.5))
    assert found.regret == found.bound == pytest.approx(1.5)


def test_one_plan_that_is_best_for_all_has_none() -> None:
    found = least_regret(finding([(2.0, 5.0, 1.0), (1.0, 4.0, 0.5)]), 3)
    assert (found.plan, found.regret, found.bound) == (1, 1, 1)


def test_the_bound_is_below_what_any_plan_reaches() -> None:
    """Which a plan may miss that is the best for no weights: 2.1 and 2.1 beside 1, 3 and 3, 1."""
    found = least_regret(finding([(1.0, 3.0), (3.0, 1.0), (2.1, 2.1)]), 2)
    assert found.bound == pytest.approx(2)
    assert found.regret == 3


@pytest.mark.parametrize("seed", range(20))
def test_choices_of_many_layers_come_near_the_bound(seed: int) -> None:
    random = np.random.default_rng(seed)
    layers = [[tuple(map(float, each)) for each in random.uniform(1, 3, (2, 3))] for _ in range(9)]
    plans = sums(layers)
    least = np.min(plans, axis=0)
    best = min(float(max(np.array(plan) / least)) for plan in plans)
    found = least_regret(finding(plans), 3)
    assert found.bound <= best * (1 + 1e-9)
    assert found.regret == pytest.approx(float(max(np.array(plans[found.plan]) / least)))
    assert best <= found.regret <= 1.05 * found.bound

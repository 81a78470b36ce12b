"""The default selector: exact where any solver is, and what it falls back to, said aloud."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.selection import exhaustive
from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import order
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import Limits, Quantity, measures
from sartor.tuning.selection.problem.problem import Choice, Node, Problem
from sartor.tuning.selection.programming import ilp

BuildRandom = Callable[[Random], Problem]
BuildNet = Callable[..., Problem]

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

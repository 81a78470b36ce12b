"""The most exact plan."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import Limits
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.selection.programming.least_error import most_exact

A, B = Schema("cpu", "f32", "nchw"), Schema("cpu", "bf16", "nchw")
EDGE = Edge("x", "y", 0)
PROBLEM = Problem(
    (
        Node("x", (Choice("fast", (), B, Cost(1.0, error=4.0)), Choice("exact", (), A, Cost(3.0, error=1.0)))),
        Node("y", (Choice("slow", (A,), A, Cost(5.0)), Choice("quick", (A,), A, Cost(2.0, memory=8.0)))),
    ),
    (EDGE,),
    {(EDGE, B, A): Cost(0.5)},
)


def test_the_least_error_and_of_those_the_fastest() -> None:
    found = most_exact(PROBLEM)
    assert [found.choices[name].name for name in ("x", "y")] == ["exact", "quick"]
    assert (found.costs.error, found.cost, found.optimal) == (1.0, 5.0, True)


def test_other_limits_hold() -> None:
    assert most_exact(PROBLEM, Limits(memory=4.0)).choices["y"].name == "slow"
    with pytest.raises(InfeasibleError):
        most_exact(PROBLEM, Limits(error=0.5))

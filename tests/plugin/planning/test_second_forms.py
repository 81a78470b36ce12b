"""Weights in a second form take at most a tenth of a plan's weights in one form."""

from __future__ import annotations

from sartor.codegen.ir.schema import Schema
from sartor.planning.second_forms import bounded
from sartor.tuning.selection import auto
from sartor.tuning.selection.elimination import dprs
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits
from sartor.tuning.selection.problem.problem import Choice, Node, Problem

PLAIN = Schema.parse("cpu:f32@nchw")
ONCE = Choice("once", (), PLAIN, Cost(9.0, memory=600.0), shared=(("w", 400.0),))
SMALL = Choice("small", (), PLAIN, Cost(10.0, memory=100.0))
TWICE = Choice("twice", (), PLAIN, Cost(8.0, memory=690.0, repeated=90.0), shared=(("w", 400.0),))


def of(*choices: Choice) -> Problem:
    return Problem((Node("layer", choices),), (), {})


def test_the_bound_is_a_tenth_of_the_best_plan_with_one_form() -> None:
    assert bounded(of(ONCE, SMALL, TWICE), auto.NAME, UNLIMITED) == Limits(repeated=100.0)
    assert bounded(of(SMALL, TWICE), auto.NAME, Limits(memory=5000.0)) == Limits(memory=5000.0, repeated=10.0)


def test_there_is_none_without_second_forms_or_without_a_choice() -> None:
    assert bounded(of(ONCE, SMALL), auto.NAME, UNLIMITED) is UNLIMITED
    assert bounded(of(TWICE), auto.NAME, UNLIMITED) is UNLIMITED
    assert bounded(of(ONCE, TWICE), dprs.NAME, UNLIMITED) is UNLIMITED

"""The difference of two plans by ONNX node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.report.difference import compare_plans
from tests.plugin.report.made import FAST, SLOW, adapt, choice, plan_of


def test_equal_plans_do_not_differ() -> None:
    plan = plan_of(choice("a"), choice("b"), adapts=[adapt("a", "b")])
    found = compare_plans(plan, plan)
    assert [each.nodes for each in found] == [("node of a",), ("node of b",)]
    assert not any(each.differs for each in found)
    assert [each.cost for each in found] == [0, 0]


def test_another_variant_costs_its_time_and_the_conversions_that_it_needs() -> None:
    first = plan_of(choice("a"), choice("b"), choice("c"))
    second = plan_of(
        choice("a"), choice("b", SLOW, 4e-3), choice("c"), adapts=[adapt("a", "b", 5e-4), adapt("c", "output:y", 2e-4)]
    )
    found = compare_plans(first, second)
    assert [each.differs for each in found] == [False, True, False]
    assert [each.cost for each in found] == pytest.approx([0, 3.5e-3, 2e-4])
    assert (found[1].first.variants, found[1].second.variants) == ((FAST,), (SLOW,))


def test_layers_that_divide_the_same_nodes_in_another_way_are_compared_together() -> None:
    fused = plan_of(choice("ab", nodes=("a", "b", "relu")), choice("c", nodes=("c",)))
    split = plan_of(
        choice("a", seconds=7e-4, nodes=("a",)), choice("b", nodes=("b", "relu")), choice("c", nodes=("c",))
    )
    together, alone = compare_plans(fused, split)
    assert together.nodes == ("a", "b", "relu")
    assert (together.first.layers, together.second.layers) == (("ab",), ("a", "b"))
    assert together.differs
    assert together.cost == pytest.approx(7e-4)
    assert not alone.differs


def test_what_only_one_of_them_computes_has_no_cost() -> None:
    found = compare_plans(plan_of(choice("a")), plan_of(choice("a"), choice("new")))
    assert [each.cost for each in found] == [0, None]
    assert found[1].first.layers == ()


def test_times_in_the_network_count_if_both_have_them() -> None:
    timed = plan_of(replace(choice("a"), in_place=2e-3))
    slower = plan_of(replace(choice("a", SLOW), in_place=5e-3))
    assert compare_plans(timed, slower)[0].cost == pytest.approx(3e-3)
    assert compare_plans(timed, plan_of(choice("a", SLOW, 1.5e-3)))[0].cost == pytest.approx(5e-4)


def test_a_reshape_takes_no_time_in_the_network() -> None:
    reshaped = replace(choice("b"), seconds=1e-7, in_place=None)
    timed = plan_of(replace(choice("a"), in_place=2e-3), reshaped)
    slower = plan_of(replace(choice("a", SLOW), in_place=5e-3), reshaped)
    assert compare_plans(timed, slower)[0].cost == pytest.approx(3e-3)

"""Workers that take workgroups, on equal and unequal cores."""

from __future__ import annotations

import pytest

from sartor.codegen.kernels.loops.partition import largest_range, smallest_range
from sartor.tuning.search.makespan import equal, given_to_cores, proportional, shrinking, taken_in_turn

BIG_LITTLE = [3.0] * 4 + [1.0] * 4


@pytest.mark.parametrize("count", [1, 2, 7, 56])
def test_shares_are_the_whole_layer(count: int) -> None:
    assert sum(equal(count)) == sum(shrinking(count)) == 1
    assert len(equal(count)) == len(shrinking(count)) == count


def test_shrinking_shares_are_those_of_the_kernels() -> None:
    extent, count = 14**2 * 10, 14
    assert [largest_range(extent, count), smallest_range(extent, count)] == [
        extent * max(shrinking(count)),
        extent * min(shrinking(count)),
    ]


def test_one_workgroup_takes_one_core() -> None:
    assert taken_in_turn(equal(1), [2.0, 1.0]) == 0.5
    assert taken_in_turn(equal(1), [2.0, 1.0], claim=0.25) == 0.75


def test_shares_of_7_5_3_1_are_balanced_on_two_cores_and_those_of_3_1_are_not() -> None:
    assert taken_in_turn(shrinking(4), [1.0, 1.0]) == 0.5
    assert taken_in_turn(shrinking(2), [1.0, 1.0]) == 0.75
    assert taken_in_turn(equal(2), [1.0, 1.0]) == 0.5


def test_equal_shares_wait_for_the_slow_cores_and_proportional_ones_do_not() -> None:
    assert given_to_cores(equal(8), BIG_LITTLE) == pytest.approx(1 / 8)
    assert given_to_cores(proportional(BIG_LITTLE), BIG_LITTLE) == pytest.approx(1 / 16)
    # A core slower than its share assumes holds up all.
    assert given_to_cores(proportional(BIG_LITTLE), [1.5, *BIG_LITTLE[1:]]) == pytest.approx(2 / 16)


def test_finer_workgroups_that_are_taken_in_turn_need_no_knowledge_of_the_speeds() -> None:
    for speeds in (BIG_LITTLE, [1.5, *BIG_LITTLE[1:]], [1.0] * 8):
        assert taken_in_turn(shrinking(7 * 8), speeds) < 1.06 / sum(speeds)
    assert taken_in_turn(equal(8), BIG_LITTLE) == pytest.approx(1 / 8)


def test_each_claim_costs_time_so_short_layers_want_few_workgroups() -> None:
    assert taken_in_turn(shrinking(14), [1.0, 1.0], claim=0.1) > taken_in_turn(shrinking(4), [1.0, 1.0], claim=0.1)
    assert taken_in_turn(shrinking(14), [1.0, 1.0], claim=1e-4) == pytest.approx(0.5, rel=0.02)

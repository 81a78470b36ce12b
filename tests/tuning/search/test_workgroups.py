"""Which numbers of workgroups are tried, that their code is right, and how workers take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variant_of, variants_of
from sartor.codegen.kernels.loops.partition import largest_range, smallest_range
from sartor.codegen.routine_registry import described
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.search_settings import SearchSettings
from sartor.tuning.search.searched import Searched
from sartor.tuning.search.workgroups import (
    equal,
    fewer_workgroups,
    given_to_cores,
    predicted_seconds,
    promising_numbers,
    proportional,
    shrinking,
    taken_in_turn,
    workgroups_of,
)
from tests.importing import ImportedOf
from tests.tuning.search.searched_tasks import STOCK, facts, kernel, listed

TWO = Target("cpu", "sapphirerapids", threads=2)


@pytest.mark.parametrize(("seconds", "numbers"), [(1e-6, [1]), (1e-5, [1, 4]), (4e-5, [4]), (1e-4, []), (1e-3, [])])
def test_the_shorter_a_layer_the_fewer_workgroups_are_tried(seconds: float, numbers: list[int]) -> None:
    assert promising_numbers(14, seconds, 2) == numbers


def test_shares_that_no_two_threads_can_balance_are_not_tried() -> None:
    assert predicted_seconds(2, 1e-4, 2, 1e-6) > 1.3 * predicted_seconds(4, 1e-4, 2, 1e-6)
    assert 2 not in promising_numbers(14, 1e-5, 2)


def test_no_number_is_above_the_usual_one() -> None:
    assert promising_numbers(1, 1e-6, 2) == []
    assert promising_numbers(4, 1e-6, 8) == [1]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({"row_groups": 7, "panel_groups": 2}, 14), ({"row_groups": 3}, 3), ({"groups": 5}, 5), ({"depth": 4}, None)],
)
def test_workgroups_are_read_off_parameters(parameters: dict[str, int], expected: int | None) -> None:
    assert workgroups_of(parameters) == expected


def found(imported_of: ImportedOf, target: Target) -> dict[str, tuple[Variant, ...]]:
    graph = imported_of("residual").graph
    return dict(list_candidates(graph, routines_for(()), target, further=fewer_workgroups).variants)


def test_small_layers_get_kernels_on_one_core_beside_the_usual_ones(imported_of: ImportedOf) -> None:
    usual = dict(list_candidates(imported_of("residual").graph, routines_for(()), TWO).variants)
    for key, variants in found(imported_of, TWO).items():
        names = [variant.descriptor for variant in variants]
        assert [name for name in names if name in {other.descriptor for other in usual[key]}] == [
            each.descriptor for each in usual[key]
        ]
        kernels = [variant for variant in variants if workgroups_of(variant.described.parameters) is not None]
        if any((workgroups_of(each.described.parameters) or 0) > 1 for each in kernels):
            assert 1 in {workgroups_of(each.described.parameters) for each in kernels}


def test_one_thread_changes_nothing(imported_of: ImportedOf) -> None:
    one = replace(TWO, threads=1)
    usual = list_candidates(imported_of("residual").graph, routines_for(()), one).variants
    assert {key: [variant.descriptor for variant in variants] for key, variants in found(imported_of, one).items()} == {
        key: [variant.descriptor for variant in variants] for key, variants in usual.items()
    }


def test_every_kernel_with_workgroups_can_be_built_with_fewer(imported_of: ImportedOf) -> None:
    """Convolutions, products, pools, rows and joins."""
    tried = 0
    for name in ("softmax", "separable", "lenet"):
        for task in imported_of(name).graph.tasks().values():
            for routine in ROUTINES:
                own = [variant for variant in variants_of(routine, task, TWO) if isinstance(variant, Variant)]
                for parameters in fewer_workgroups(task, own, TWO):
                    built = variant_of(routine, task, parameters, TWO)
                    assert isinstance(built, Variant)
                    assert (workgroups_of(built.described.parameters) or 99) <= 4
                    tried += 1
    assert tried > 5


def test_the_first_round_with_several_threads_measures_other_numbers_of_workgroups() -> None:
    usual, other_tile = kernel(4, 2), kernel(7, 4)
    one = usual.replace("row_groups=14", "row_groups=1")
    subject = Searched("a", facts(64, 7), listed(STOCK, usual, one, other_tile), 1)
    picks = {
        threads: VariantSearch([subject], settings=SearchSettings(threads=threads)).first({})["a"] for threads in (1, 2)
    }
    assert one not in picks[1]
    assert set(picks[2]) == {*picks[1], one}
    assert workgroups_of(described(one).parameters) == 1


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

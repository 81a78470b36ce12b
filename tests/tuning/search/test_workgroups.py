"""Which numbers of workgroups are tried, and that their code is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variant_of, variants_of
from sartor.codegen.routine_registry import described
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.search_settings import SearchSettings
from sartor.tuning.search.searched import Searched
from sartor.tuning.search.workgroups import fewer_workgroups, predicted_seconds, promising_numbers, workgroups_of
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

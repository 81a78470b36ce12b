"""Files are checked next to changes of code: at all, or at those that say most of the others."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.codegen.ir.thresholds import MOST_CHECKED, Sizes, Threshold, crossing_sizes, described

ROWS = Symbol("rows", 1, 4096)
KNOWN: list[Sizes] = [{"rows": 1}, {"rows": 4096}]


def at(first: int, layer: str = "y") -> Threshold:
    return Threshold(layer, Extent.of_symbol(ROWS), {"rows": first - 1}, {"rows": first})


def apart(firsts: list[int], sizes: list[int]) -> list[float]:
    """How many times as many rows the nearest of these sizes has as each side of each change, as logarithms."""
    sides = [(first - 1, [size for size in sizes if size < first]) for first in firsts]
    sides += [(first, [size for size in sizes if size >= first]) for first in firsts]
    return [min(abs(math.log(size / side)) for size in own) for side, own in sides]


def test_few_changes_are_crossed_by_both_sides() -> None:
    firsts = [2, 64, 65, 700, 4000]
    found = [sizes["rows"] for sizes in crossing_sizes([at(first) for first in firsts], KNOWN)]
    assert sorted(found) == sorted({first - 1 for first in firsts[1:]} | {*firsts})


def test_layers_that_change_at_the_same_size_are_checked_once() -> None:
    assert len(crossing_sizes([at(96, name) for name in "abc"], KNOWN)) == 2


def test_nothing_is_checked_where_nothing_changes() -> None:
    assert crossing_sizes([], KNOWN) == []


@pytest.mark.parametrize("step", [1.07, 1.12])
def test_many_changes_are_checked_near_by(step: float) -> None:
    firsts = [int(8 * math.pow(step, index)) for index in range(50)]
    found = [sizes["rows"] for sizes in crossing_sizes([at(first) for first in firsts], KNOWN)]
    assert len(found) == MOST_CHECKED
    assert max(apart(firsts, [1, 4096, *found])) <= math.log(firsts[-1] / firsts[0]) / 4


@pytest.mark.parametrize("firsts", [[5, 17, 40, 900], [100, 110, 121, 3000], [9, 10, 11, 12, 2000]])
def test_no_choice_of_as_many_sizes_does_much_more(firsts: list[int]) -> None:
    ends = [1, 4096]
    found = [sizes["rows"] for sizes in crossing_sizes([at(first) for first in firsts], KNOWN, most=3)]
    candidates = [size for first in firsts for size in (first - 1, first)]
    before = math.fsum(apart(firsts, ends))
    best = max(before - math.fsum(apart(firsts, [*ends, *chosen])) for chosen in combinations(candidates, 3))
    assert before - math.fsum(apart(firsts, [*ends, *found])) >= (1 - 1 / math.e) * best


def test_layers_with_the_same_change_are_told_of_together() -> None:
    assert described([at(96, "a"), at(40, "b"), at(96, "c")]) == [
        "'a' and 1 more layers run other code from rows=96 on",
        "'b' runs other code from rows=40 on",
    ]

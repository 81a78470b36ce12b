"""By which parts a prompt is taken: the least time of all, within the room that there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from sartor.runtime.runs.part_sizes import PartSizes

CALLS = {4: 2.5, 9: 4.25, 32: 11.0}


def all_ways(left: int, calls: Mapping[int, float]) -> Iterator[list[int]]:
    """All parts that together have at least so many tokens, none of which could be left out."""
    if left <= 0:
        yield []
        return
    for size in calls:
        for others in all_ways(left - size, {each: taken for each, taken in calls.items() if each <= size}):
            yield [size, *others]


def taken(parts: PartSizes, tokens: int, room: int) -> list[int]:
    found, left = list[int](), tokens
    while left > 0:
        found.append(parts.next(left, room - tokens + left))
        left -= found[-1]
    return found


@pytest.mark.parametrize("tokens", [*range(1, 33)])
def test_parts_of_a_prompt_take_the_least_time_of_all(tokens: int) -> None:
    parts, calls = PartSizes(CALLS), {1: 1.0, **CALLS}
    found = taken(parts, tokens, 1000)
    least = min(sum(calls[size] for size in way) for way in all_ways(tokens, calls))
    assert sum(calls[size] for size in found) == parts.calls(tokens) == pytest.approx(least)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (1, [1]),
        (2, [1, 1]),
        (3, [4]),
        (5, [4, 1]),
        (9, [9]),
        (33, [32, 1]),
        (100, [32, 32, 32, 4]),
    ],
)
def test_a_rest_is_filled_up_where_that_is_faster(tokens: int, found: list[int]) -> None:
    assert taken(PartSizes(CALLS), tokens, 1000) == found


def test_a_part_is_filled_up_within_the_room_alone() -> None:
    parts = PartSizes(CALLS)
    assert taken(parts, 8, 9) == [9]
    assert taken(parts, 8, 8) == [4, 4]
    assert taken(parts, 3, 3) == [1, 1, 1]
    assert taken(parts, 40, 40) == [32, 4, 4]


def test_a_part_that_takes_longer_than_its_tokens_is_not_taken() -> None:
    assert taken(PartSizes({4: 4.5, 8: 7.0}), 12, 1000) == [8, 1, 1, 1, 1]


@pytest.mark.parametrize(("calls", "least"), [({}, 0), (CALLS, 3), ({4: 0.5}, 2), ({4: 2.0, 8: 3.0}, 2)])
def test_the_least_tokens_of_a_part_are_those_that_take_its_time(calls: Mapping[int, float], least: int) -> None:
    assert PartSizes(calls).least == least


def test_without_parts_tokens_go_one_by_one() -> None:
    parts = PartSizes({})
    assert taken(parts, 3, 3) == [1, 1, 1]
    assert parts.calls(3) == 3

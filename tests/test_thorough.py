"""The list of tests for which CI has no time names tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thorough import TESTS, with_each_routine

_TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", TESTS)
def test_the_test_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test.partition('[')[0]}(" in (_TESTS / file).read_text(encoding="utf-8")


def test_a_routine_that_turns_leave_out_is_tried_where_it_is_first_offered() -> None:
    offered = {
        "a": {"direct{x=1}": 1, "join": 2},
        "b": {"cpu:f32/conv2d.direct{x=2}": 3, "window{}": 4},
        "c": {"window{}": 5},
    }
    tried = {"a": {"direct{x=1}": 1}, "b": {"cpu:f32/conv2d.direct{x=2}": 3}, "c": dict[str, int]()}
    assert with_each_routine(offered, tried) == {
        "a": {"direct{x=1}": 1, "join": 2},
        "b": {"cpu:f32/conv2d.direct{x=2}": 3, "window{}": 4},
        "c": {},
    }

"""Measurements that contradict what is known of many networks, and decide."""

from __future__ import annotations

import pytest

from sartor.tuning.search.doubts.surprises import surprising
from sartor.tuning.search.searched import Times
from sartor.tuning.search.shipped.likeness import guide
from tests.tuning.search.searched_tasks import VARIANTS, best, samples, seconds, task

SHIPPED = samples(*(task(f"{channels}x{side}", channels, side) for channels in (32, 64, 256, 512) for side in (7, 28)))
TASKS = [task(f"{channels}x{side}", channels, side) for channels in (96, 128, 512) for side in (14, 56)]
GUIDE = guide(SHIPPED)
# This machine is slower than the one whose times are known.
PACE = 3.0


def taken(**slower: float) -> Times:
    """All variants' times here, those of some tasks' best variants longer."""
    known = {each.key: {name: PACE * seconds(each.facts, name) for name in VARIANTS} for each in TASKS}
    for each in TASKS:
        known[each.key][best(each)] *= slower.get(f"k{each.key}", 1.0)
    return known


@pytest.fixture(autouse=True)
def _trained() -> None:
    assert GUIDE is not None


def test_what_is_as_expected_is_no_surprise() -> None:
    assert GUIDE is not None
    assert surprising(TASKS, taken(), SHIPPED, GUIDE) == {}


def test_the_best_that_was_disturbed_is_found() -> None:
    assert GUIDE is not None
    found = surprising(TASKS, taken(k128x14=8.0), SHIPPED, GUIDE)
    assert list(found) == ["128x14"]
    assert best(next(each for each in TASKS if each.key == "128x14")) in found["128x14"]


def test_what_would_not_decide_is_left() -> None:
    """Vectors of one are slow anyway."""
    assert GUIDE is not None
    known = {key: dict(found) for key, found in taken().items()}
    slow = next(name for name in VARIANTS if "vectors=1" in name)
    known["128x14"][slow] = 8 * (known["128x14"][slow] or 0.0)
    assert surprising(TASKS, known, SHIPPED, GUIDE) == {}


def test_of_few_measurements_nothing_is_said() -> None:
    assert GUIDE is not None
    few: Times = {each.key: {best(each): 1.0} if each.key == "128x14" else {} for each in TASKS}
    assert surprising(TASKS, few, SHIPPED, GUIDE) == {}

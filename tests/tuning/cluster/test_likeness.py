"""Machines are compared by candidate 0."""

from __future__ import annotations

import pytest

from sartor.tuning.cluster.likeness import Likeness


def likeness(**seconds: tuple[float, ...]) -> Likeness:
    made = Likeness("first")
    for machine, taken in seconds.items():
        for task, each in enumerate(taken):
            made.put(machine, str(task), each)
    return made


def test_a_machine_is_as_slow_as_the_median_of_its_ratios() -> None:
    made = likeness(first=(1e-3, 2e-3, 4e-3), other=(1.1e-3, 2.4e-3, 4.2e-3))
    assert made.slowness("first") == 1.0
    assert made.slowness("other") == pytest.approx(1.1)
    assert not made.is_unlike("other")


def test_nothing_is_known_of_a_machine_that_shares_no_task_with_the_first() -> None:
    made = likeness(first=(1e-3,))
    made.put("other", "another task", 1e-3)
    assert made.slowness("other") is None
    made.assume("other")
    assert made.slowness("other") == 1.0


@pytest.mark.parametrize("seconds", [(2e-3, 4e-3), (0.5e-3, 1e-3), (1e-3, 5e-3)])
def test_a_machine_of_another_speed_or_other_strengths_is_unlike(seconds: tuple[float, ...]) -> None:
    assert likeness(first=(1e-3, 2e-3), other=seconds).is_unlike("other")

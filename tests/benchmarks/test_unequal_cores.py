"""The simulation of unequal cores, and that the documentation shows its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.unequal_cores import CPUS, PARTITIONS, SECONDS, relative, table

DOCS = Path(__file__).parents[2] / "docs" / "records" / "tuning.md"


@pytest.mark.parametrize("cpu", CPUS)
def test_nothing_is_faster_than_all_cores_that_end_together(cpu: str) -> None:
    assert all(relative(name, cpu) >= 1 - 1e-9 for name in PARTITIONS)


def test_equal_shares_are_for_equal_cores() -> None:
    assert relative("a share for each core, equal", "8 equal") == pytest.approx(1)
    assert relative("a share for each core, equal", "4 + 4, 3 to 1") == pytest.approx(2)


def test_shares_by_speed_are_best_as_long_as_the_speeds_are_as_expected() -> None:
    by_speed = "a share for each core, by the expected speed"
    assert relative(by_speed, "4 + 4, 3 to 1") == pytest.approx(1)
    throttled = "4 + 4, 3 to 1, a big one at half"
    assert relative(by_speed, throttled) > 1.5
    assert relative("in turn, 7 shrinking for each core", throttled) < 1.1


def test_short_layers_lose_more_by_many_workgroups() -> None:
    claims = [1e-7 / second for second in SECONDS]
    many, few = (
        [relative(f"in turn, {count} shrinking for each core", "4 + 4, 3 to 1", claim) for claim in claims]
        for count in (7, 2)
    )
    assert many[0] > few[0]
    assert many[-1] < few[-1]


def test_the_documentation_shows_what_the_simulation_says() -> None:
    assert table() in DOCS.read_text(encoding="utf-8")

"""Simulations of unequal cores obey what must hold of any."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.big_little import BIG, Queues, Stages, Timeline, assign, least_seconds, simulate
from benchmarks.unequal_cores import CPUS, PARTITIONS, SECONDS, relative, table
from sartor.tuning.selection.overlap.queues import Queues as TwoQueues

BIG_LITTLE_SECONDS = st.integers(0, 12)
NETS = st.lists(st.builds(Stages, BIG_LITTLE_SECONDS, BIG_LITTLE_SECONDS, BIG_LITTLE_SECONDS), min_size=1, max_size=7)


def check(timeline: Timeline, layers: list[Stages]) -> None:
    """Each layer is prepared once and executed once, in order, and no core does two things at once."""
    prepared = {step.layer: step.end for step in timeline.steps if not step.executes}
    executed = [step for step in timeline.steps if step.executes]
    assert sorted(prepared) == [step.layer for step in sorted(executed, key=lambda step: step.layer)]
    assert len(timeline.steps) == 2 * len(layers)
    assert all(step.core == BIG and step.begin >= prepared[step.layer] for step in executed)
    ordered = sorted(executed, key=lambda step: step.layer)
    assert all(one.end <= other.begin for one, other in pairwise(ordered))
    for core in {step.core for step in timeline.steps}:
        own = sorted((step.begin, step.end) for step in timeline.steps if step.core == core)
        assert all(one[1] <= other[0] for one, other in pairwise(own))


@given(NETS, st.sampled_from([1, 2, 4, 7]), st.booleans(), st.lists(st.sampled_from([1.0, 1.5, 4.0]), max_size=5))
def test_schedules_are_possible_and_within_their_bounds(
    layers: list[Stages], little: int, steals: bool, slowed: list[float]
) -> None:
    queues = assign(layers, little)
    assert sorted(layer for queue in queues for layer in queue) == [*range(len(layers))]
    timeline = simulate(layers, queues, slowed, steals=steals)
    check(timeline, layers)
    assert timeline.seconds >= least_seconds(layers)
    assert timeline.steals == 0 or steals


def test_one_big_and_one_little_core_are_two_queues() -> None:
    """What prepares does nothing else, as Sartor's reading thread."""
    layers = [Stages(reading, 9.0, executing) for reading, executing in ((3.0, 2.0), (1.0, 4.0), (5.0, 1.0))]
    alone = simulate(layers, ((), (0, 1, 2)), steals=False)
    assert alone.seconds == TwoQueues((3.0, 1.0, 5.0), (2.0, 4.0, 1.0)).seconds == 10.0


def test_one_core_does_all_in_turn() -> None:
    layers = [Stages(1.0, 2.0, 3.0), Stages(1.0, 2.0, 3.0)]
    assert simulate(layers, assign(layers, 0)).seconds == 10.0


def deep(count: int = 48) -> list[Stages]:
    """A net like those of the paper: preparing takes longer than executing, and on little cores longer still."""
    return [Stages(2.0 + index % 5, 1.0 + index % 5 / 2, 1.5) for index in range(count)]


def test_four_little_cores_hide_the_preparations() -> None:
    layers = deep()
    seconds = [simulate(layers, assign(layers, little), steals=False).seconds for little in (0, 1, 2, 4, 8)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 2 * seconds[3]
    assert seconds[3] < 1.1 * least_seconds(layers)
    assert seconds[4] < 1.05 * least_seconds(layers)


@pytest.mark.parametrize("little", [4, 8])
def test_stealing_bounds_what_a_busy_core_costs(little: int) -> None:
    layers = deep()
    queues = assign(layers, little)
    free, slowed = simulate(layers, queues).seconds, [1.0, 8.0, 8.0]
    waiting, stealing = (simulate(layers, queues, slowed, steals=steals) for steals in (False, True))
    assert stealing.steals
    assert waiting.seconds > 1.5 * free
    assert stealing.seconds < 0.75 * waiting.seconds


@given(st.lists(st.builds(Stages, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_with_stealing_it_is_near_the_best_of_all_schedules(layers: list[Stages]) -> None:
    """Against all divisions of the preparations among two little cores and the big ones; 2 is a bound of any schedule
    that leaves no core idle (Graham, "Bounds on multiprocessing timing anomalies", 1969), where cores are alike."""
    alike = [Stages(layer.on_little, layer.on_little, layer.executing) for layer in layers]
    best = min(
        simulate(alike, _divided(owners), steals=False).seconds for owners in product(range(3), repeat=len(alike))
    )
    assert best >= least_seconds(alike)
    assert simulate(alike, assign(alike, 2)).seconds <= 2 * best


def _divided(owners: tuple[int, ...]) -> Queues:
    return tuple(tuple(layer for layer, owner in enumerate(owners) if owner == core) for core in range(3))


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

"""The simulation of many machines obeys what must hold of any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.many_workers import COMPILE_SECONDS, MEASURE_SECONDS, Farm, Network, simulate

EVEN = Network("even", ((4,) * 40, (2,) * 40))
QUIET = Farm(10)


def test_no_farm_is_faster_than_its_machines() -> None:
    for count in (1, 3, 10):
        least = EVEN.variants * MEASURE_SECONDS * 0.8 / count
        assert least < simulate(EVEN, Farm(count)).seconds < EVEN.alone


def test_a_round_takes_as_long_as_its_longest_case() -> None:
    lopsided = Network("lopsided", ((50, 1, 1, 1),))
    assert simulate(lopsided, Farm(100)).seconds > 50 * (COMPILE_SECONDS + 0.8 * MEASURE_SECONDS)


@pytest.mark.parametrize("seed", range(3))
def test_all_is_measured_however_machines_are_lost(seed: int) -> None:
    done = simulate(EVEN, replace(QUIET, mean_life=5.0), seed)
    assert done.lost > 0
    assert done.seconds > simulate(EVEN, QUIET, seed).seconds


def test_second_attempts_shorten_the_wait_for_stragglers() -> None:
    slow = replace(QUIET, straggling=0.05)
    twice = [simulate(EVEN, slow, seed) for seed in range(8)]
    once = [simulate(EVEN, replace(slow, duplicates=False), seed) for seed in range(8)]
    assert sum(each.twice for each in twice) > 0 == sum(each.twice for each in once)
    assert sum(each.seconds for each in twice) < sum(each.seconds for each in once)

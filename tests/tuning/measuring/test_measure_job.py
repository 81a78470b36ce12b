"""Which runs are timed, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from sartor.tuning.measuring.measure_job import MeasureSettings, time_in_turn

# Fake runs take no time, so the limit of time is what ends them.
SETTINGS = MeasureSettings("vulkan", 1, 1e-3, rounds=3, seconds=0.0)


class _Runs:
    """Runs that say how long they took.

    Attributes:
        done: names of the runs, in order.
    """

    def __init__(self, **seconds: float) -> None:
        self.done: list[str] = []
        self.by_name: dict[str, Callable[[], float]] = {name: self._run(name, taken) for name, taken in seconds.items()}

    def _run(self, name: str, seconds: float) -> Callable[[], float]:
        def run() -> float:
            self.done.append(name)
            return seconds

        return run


def test_a_run_that_is_known_to_be_hopeless_is_not_repeated() -> None:
    runs = _Runs(stock=5.0, kernel=0.02)
    samples = time_in_turn(runs.by_name, "stock", SETTINGS, {"stock": 3.0})
    assert "stock" not in runs.done
    assert samples["stock"] == (3.0,)
    assert set(samples["kernel"]) == {0.02}


def test_a_run_that_takes_long_is_timed_if_it_may_be_the_fastest() -> None:
    runs = _Runs(stock=5.0, kernel=4.0)
    samples = time_in_turn(runs.by_name, "stock", SETTINGS, {"stock": 3.0})
    assert samples["stock"][0] == 5.0
    assert "stock" in runs.done


def test_a_run_that_takes_long_is_timed_if_there_is_no_other() -> None:
    runs = _Runs(stock=5.0)
    assert time_in_turn(runs.by_name, "stock", SETTINGS, {"stock": 3.0})["stock"][0] == 5.0


def test_a_run_that_proved_hopeless_once_is_not_repeated() -> None:
    runs = _Runs(stock=1.0, kernel=0.02)
    time_in_turn(runs.by_name, "stock", SETTINGS)
    assert Counter(runs.done)["stock"] == 1


def test_a_reshape_makes_nothing_hopeless() -> None:
    """It reads another layout than stock code, which has to be made."""
    runs = _Runs(stock=4e-6, reshape=1e-7)
    samples = time_in_turn(runs.by_name, "stock", replace(SETTINGS, seconds=1.0))
    assert len(samples["stock"]) == len(samples["reshape"])
    assert len(samples["stock"]) >= SETTINGS.rounds

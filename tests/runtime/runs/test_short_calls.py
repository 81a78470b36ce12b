"""Short calls of a model of any size run on the calling thread where that is faster, which no result tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from sartor.runtime.driver.signature import Array
from sartor.runtime.runs.short_calls import HELD, LONGEST_SECONDS, ShortCalls

Seconds = Callable[[int], float]


class _Model:
    """A model that takes a time for each number of elements, by a clock of its own, and notes where calls ran."""

    def __init__(self, on_all: Seconds, inline: Seconds) -> None:
        self.now, self.ran = 0.0, list[str]()
        self._seconds = {"all": on_all, "inline": inline}
        self.calls = ShortCalls(lambda: self.now)

    def run(self, elements: int, times: int = 1) -> list[str]:
        """Where so many calls ran."""
        feeds = {"x": np.zeros(elements, np.float32)}
        for _ in range(times):
            (found,) = self.calls.run(feeds, lambda: self._ran("all", feeds), lambda: self._ran("inline", feeds))
            assert found is feeds["x"]
        return self.ran[-times:]

    def _ran(self, where: str, feeds: Mapping[str, Array]) -> list[Array]:
        self.now += self._seconds[where](feeds["x"].size)
        self.ran.append(where)
        return [feeds["x"]]


def _woken(elements: int) -> float:
    return 5e-5 + 5e-7 * elements


def _alone(elements: int) -> float:
    return 1e-6 * elements


def test_short_calls_stay_on_the_thread_and_others_go_to_all() -> None:
    model = _Model(_woken, _alone)
    for elements, where in ((10, "inline"), (70, "inline"), (500, "all"), (10, "inline")):
        model.run(elements, 20)
        assert set(model.run(elements, 20)) == {where}


def test_long_calls_are_not_tried_alone() -> None:
    model = _Model(lambda _: 2 * LONGEST_SECONDS, lambda _: 1.0)
    assert set(model.run(100, 2 * HELD)) == {"all"}


def test_one_slow_call_on_all_threads_does_not_tell_that_calls_are_long() -> None:
    late = iter([1.0, 2e-3, 1.0])
    model = _Model(lambda _: next(late, 3 * LONGEST_SECONDS), lambda _: 1e-4)
    model.run(40, 20)
    assert set(model.run(40, 20)) == {"inline"}


def test_calls_that_take_much_longer_alone_are_tried_twice() -> None:
    model = _Model(lambda _: 0.9 * LONGEST_SECONDS, lambda _: 3 * LONGEST_SECONDS)
    assert model.run(40, 2 * HELD // 3).count("inline") == 2


def test_sizes_that_are_similar_are_tried_together() -> None:
    model = _Model(_woken, _alone)
    for elements in (17, 31, 23, 19) * 5:
        model.run(elements)
    assert model.run(29) == ["inline"]


def test_a_decision_is_made_anew_after_many_calls() -> None:
    slowness = [4.0]
    model = _Model(lambda _: 1e-4 * slowness[0], lambda _: 2e-4)
    model.run(40, 20)
    assert model.run(40) == ["inline"]
    slowness[0] = 1.0
    model.run(40, HELD + 20)
    assert model.run(40) == ["all"]


def test_a_call_that_fails_counts_for_nothing() -> None:
    calls = ShortCalls()

    def fail() -> list[Array]:
        raise ValueError("no")

    for _ in range(40):
        with pytest.raises(ValueError, match="no"):
            calls.run({"x": np.zeros(3)}, fail, fail)
    assert calls.run({"x": np.zeros(3)}, lambda: [np.ones(1)], lambda: [np.ones(1)])[0].size == 1

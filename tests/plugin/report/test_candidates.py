"""Why the candidates of a layer that were not chosen lost."""

from __future__ import annotations

import pytest

from sartor.report.candidates import Candidate, candidates_of
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.tasks import TaskResult, task_results
from tests.plugin.report.made import FAST, SLOW, WRONG, measurement, result

_OTHER = "cpu:f32/conv2d.tiled"


def _by_name(found: tuple[Candidate, ...]) -> dict[str, Candidate]:
    return {each.variant: each for each in found}


def _with(*more: tuple[str, tuple[float, ...]]) -> TaskResult:
    listed = [*result().variants, *(measurement(name, times) for name, times in more)]
    return next(iter(task_results(listed)))


def test_the_fastest_comes_first_then_failures() -> None:
    found = candidates_of(result(), FAST)
    assert [each.variant for each in found] == [FAST, SLOW, WRONG]
    assert [each.chosen for each in found] == [True, False, False]
    assert [each.status for each in found] == ["ok", "ok", "wrong_result"]
    assert [each.reason for each in found] == [
        "",
        "3.72 times as slow",
        "is wrong: off by 0.5",
    ]


def test_times_have_their_spread() -> None:
    chosen = candidates_of(result(), FAST)[0]
    assert chosen.seconds == pytest.approx(1.075e-3)
    assert chosen.spread == pytest.approx((1e-3, 1.075e-3, 1.15e-3, 1.225e-3, 1.3e-3))
    assert chosen.samples == 4


def test_times_are_scaled_to_candidate_0_of_the_same_run() -> None:
    listed = [*result().variants, measurement(_OTHER, (8e-3,) * 4, stock=8e-3)]
    other = _by_name(candidates_of(next(iter(task_results(listed))), FAST))[_OTHER]
    assert other.seconds == pytest.approx(4e-3)
    assert other.spread == pytest.approx((4e-3,) * 5)


@pytest.mark.parametrize(
    ("name", "seconds", "reason"),
    [
        (_OTHER, 0.5e-3, "0.575 ms faster alone, but the conversions on its edges"),
        (_OTHER, 1.076e-3, "as fast alone; the conversions on its edges"),
        ("cpu:bf16/conv2d.tiled", 0.5e-3, "computes in bf16, which the allowed error"),
        ("vulkan:f32/conv2d.tiled", 2.15e-3, "2.00 times as slow on vulkan, apart from transfers"),
    ],
)
def test_faster_ones_lost_for_a_reason(name: str, seconds: float, reason: str) -> None:
    found = _by_name(candidates_of(_with((name, (seconds,) * 4)), FAST))
    assert found[name].reason.startswith(reason)


def test_without_a_choice_the_whole_model_was_faster() -> None:
    assert all("whole model" in candidate.reason for candidate in candidates_of(result(), None) if candidate.seconds)


def test_what_is_disturbed_says_so() -> None:
    listed = [*result().variants, measurement(_OTHER, (), Status.KILLED)]
    found = _by_name(candidates_of(next(iter(task_results(listed))), FAST))
    assert found[_OTHER].reason == "was disturbed"

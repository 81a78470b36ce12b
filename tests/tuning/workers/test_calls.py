"""Calls of functions in a worker give what these return, or raise what the user should read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sartor.errors import CompileError, DeviceError, SartorError, UsageError
from sartor.tuning.workers.calls import call, call_each, call_until_done
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.workers.call_jobs import Counted, count_on, is_collecting, lose_device, process


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as opened:
        yield opened


def test_a_call_returns_what_the_function_does(pool: WorkerPool) -> None:
    assert call(pool, count_on, {"before": Counted((0, 1)), "seconds": 1.0}, "counting") == Counted((0, 1, 2))


def test_results_of_several_calls_are_in_their_order(pool: WorkerPool) -> None:
    several = [{"before": Counted((0,) * count), "seconds": 1.0} for count in (3, 1, 2)]
    assert [each.done for each in call_each(pool, count_on, several, "counting")] == [4, 2, 3]
    assert call_each(pool, count_on, [], "counting") == []


def test_the_first_of_several_calls_that_fails_is_told(pool: WorkerPool) -> None:
    several = [{"before": Counted(), "seconds": 1.0, "refused": refused} for refused in (5, 0)]
    with pytest.raises(UsageError, match="0 is refused"):
        call_each(pool, count_on, several, "counting")


def test_garbage_is_looked_for_while_a_job_runs(pool: WorkerPool) -> None:
    assert call(pool, is_collecting, {}, "looking")


def test_a_crash_says_what_was_being_done(pool: WorkerPool) -> None:
    with pytest.raises(CompileError, match="counting"):
        call(pool, count_on, {"before": Counted(), "seconds": 0.0}, "counting")


def test_a_job_goes_on_from_call_to_call_until_it_is_done(pool: WorkerPool) -> None:
    told: list[tuple[str, int, int]] = []
    found = call_until_done(
        pool, count_on, {}, Counted(), 3, "counting", progress=lambda *each: told.append(each), seconds=1.0
    )
    assert found == Counted((0, 1, 2))
    assert told == [("counting", done, 3) for done in range(4)]


def test_a_job_that_is_done_is_not_called(pool: WorkerPool) -> None:
    told: list[tuple[str, int, int]] = []
    done = Counted((0, 1))
    tell = told.append
    assert call_until_done(pool, count_on, {}, done, 2, "counting", progress=lambda *each: tell(each)) is done
    assert told == [("counting", 2, 2)]


def test_a_refusal_on_the_way_is_raised(pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match="1 is refused"):
        call_until_done(pool, count_on, {"refused": 1}, Counted(), 3, "counting", progress=lambda *_: None, seconds=1.0)


@pytest.mark.parametrize(("is_raised", "error"), [(True, CompileError), (False, DeviceError)])
def test_after_a_device_failed_its_process_is_replaced(
    is_raised: bool, error: type[SartorError], pool: WorkerPool
) -> None:
    """It may be lost, for whatever runs there: that a job returns its error makes no difference."""
    before = call(pool, process, {}, "asking")
    assert call(pool, process, {}, "asking") == before
    with pytest.raises(error, match="VK_ERROR_DEVICE_LOST"):
        call(pool, lose_device, {"is_raised": is_raised}, "losing it")
    assert call(pool, process, {}, "asking") != before

"""Where a scheduler is, as a user names it: an address, or a file that may not be there yet, or is another file."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path

import pytest
from distributed import CancelledError
from distributed.client import AllExit

from sartor.errors import UsageError
from sartor.tuning.cluster.link import DaskLink, Scheduler


@pytest.mark.parametrize("text", ["{}", "[]", "7", "no JSON", '{"address": 7}', '{"address": "nowhere"}'])
def test_a_file_without_an_address_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="address"):
        _ = Scheduler.of(str(file)).arguments


@pytest.mark.parametrize("text", [None, "", '{"address": "tcp://127'])
def test_a_file_that_is_not_written_to_its_end_may_be_so_later(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OSError, match=r"scheduler's file '.*' is not"):
        _ = Scheduler.of(str(file)).arguments
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    assert Scheduler.of(str(file)).arguments == {"scheduler_file": str(file)}


class _Lost:
    """A future that has ended, and raises when it is asked how."""

    def __init__(self, status: str, raised: BaseException) -> None:
        self.status, self.raised = status, raised

    def result(self, timeout: float) -> None:
        raise self.raised

    exception = result


@pytest.mark.parametrize("status", ["finished", "error"])
@pytest.mark.parametrize("kind", [TimeoutError, OSError, CancelledError, RuntimeError])
def test_a_future_that_is_lost_ends_its_job(status: str, kind: type[Exception]) -> None:
    told: list[tuple[object, str]] = []
    link = DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))
    link._ended(_Lost(status, kind("late")), lambda *end: told.append(end))
    assert told == [(None, f"{kind.__name__}: late")]


def test_a_mistake_in_reading_an_end_is_raised_and_ends_the_job_too() -> None:
    told: list[tuple[object, str]] = []
    link = DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))
    with pytest.raises(KeyError):
        link._ended(_Lost("finished", KeyError("name")), lambda *end: told.append(end))
    assert told == [(None, "its end could not be read")]


@pytest.mark.parametrize(("raised", "is_told"), [(AllExit(), False), (ValueError("wrong"), True)])
def test_how_dask_stops_waiting_is_not_told_as_an_error(
    raised: Exception, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))

    async def fail() -> None:
        raise raised

    async def leave_alone() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        asyncio.run(leave_alone())
    assert bool(caplog.records) == is_told

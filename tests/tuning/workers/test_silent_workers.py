"""Workers that stop, hang or lie within a message hold up nobody."""

from __future__ import annotations

import itertools
import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import CompileError
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.channel import Channel, wait
from sartor.tuning.workers.disturbances import is_stopped
from sartor.tuning.workers.hangs.stacks import innermost
from sartor.tuning.workers.pool import JobStatus, WorkerPool
from tests.tuning.workers.running import MIB, gone, run
from tests.tuning.workers.worker_jobs import hang_in_a_library


def test_a_worker_that_stops_within_a_message_is_ended(pool: WorkerPool) -> None:
    begin = time.monotonic()
    result = run(pool, "stop_within_answer", timeout=2.0)
    assert (result.status, result.value) == (JobStatus.KILLED, None)
    assert time.monotonic() - begin < 10
    assert run(pool, "add", left=1, right=2).value == 3


def test_a_worker_that_hangs_within_a_message_is_ended(pool: WorkerPool) -> None:
    begin = time.monotonic()
    assert run(pool, "hang_within_answer", timeout=1.0).status is JobStatus.TIMEOUT
    assert time.monotonic() - begin < 10


def test_a_worker_that_hangs_up_and_does_not_end_was_not_killed_by_others(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sartor.tuning.workers.process._DEATH_SECONDS", 0.3)
    result = run(pool, "hang_up")
    assert result.status is JobStatus.CRASHED
    assert "did not end" in result.message


def test_an_endless_message_is_not_believed(pool: WorkerPool) -> None:
    result = run(pool, "announce_endless_answer")
    assert result.status is JobStatus.CRASHED
    assert str(1 << 62) in result.message
    assert run(pool, "add", left=1, right=2).value == 3


def test_a_stopped_worker_is_ended_long_before_its_time_is_over(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sartor.tuning.workers.pool._HEARTBEAT", 0.1)
    monkeypatch.setattr("sartor.tuning.workers.process._STOPPED_SECONDS", 0.3)
    result = run(pool, "die_of", timeout=60, name="SIGSTOP")
    assert result.status is JobStatus.KILLED
    assert "stopped" in result.message


def test_a_stopped_worker_gets_no_job() -> None:
    with WorkerPool(1) as pool:
        pid = run(pool, "process").value
        os.kill(pid, signal.SIGSTOP)
        while not is_stopped(pid):
            time.sleep(0.01)
        large = np.zeros(4 * MIB, np.uint8)
        assert run(pool, "double", data=large, timeout=20).status is JobStatus.OK
        assert gone(pid)


def test_a_large_job_for_a_worker_that_does_not_read_it_holds_up_nobody(tmp_path: Path) -> None:
    asked, closed = tmp_path / "asked", tmp_path / "closed"
    with WorkerPool(1) as pool:
        run(pool, "close_ears", asked=str(asked), closed=str(closed))
        asked.touch()
        while not closed.exists():
            time.sleep(0.01)
        result = run(pool, "double", data=np.zeros(4 * MIB, np.uint8), timeout=1.0)
        assert result.status is JobStatus.TIMEOUT


def test_who_slept_through_an_answer_hears_it_later(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the parent had been stopped while the answer came, which is longer than what the system keeps."""
    waits = itertools.count()

    def oversleep(channels: Sequence[Channel], seconds: float) -> list[Channel]:
        if next(waits) == 0:
            time.sleep(4.0)
        return wait(channels, 0.1)

    run(pool, "add", left=1, right=2)
    monkeypatch.setattr("sartor.tuning.workers.pool._HEARTBEAT", 0.1)
    monkeypatch.setattr("sartor.tuning.workers.pool.wait", oversleep)
    data = np.ones(8 * MIB, np.uint8)
    assert run(pool, "double", timeout=2.0, data=data).status is JobStatus.OK


def test_a_worker_that_hangs_says_where(pool: WorkerPool) -> None:
    """Also where it has closed its stderr, and is in a library that does not run Python."""
    result = run(pool, "hang_in_a_library", timeout=1.0)
    assert result.status is JobStatus.TIMEOUT
    assert result.message == "still running after 1 s, killed; its last output:\nbefore"
    assert innermost(result.stacks) == "hang_in_a_library, called by answer, called by serve"
    assert re.search(r"^thread \d+ \S+: [SD] ", result.stacks)


def test_a_worker_that_ends_in_time_prints_no_stacks(pool: WorkerPool) -> None:
    assert run(pool, "add", left=1, right=2).stacks == ""


def test_the_error_names_the_place_and_keeps_the_stacks(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CompileError) as raised:
        call(pool, hang_in_a_library, {}, "waiting", timeout=1.0)
    (file,) = tmp_path.glob("sartor-stacks-*.txt")
    first, *rest = str(raised.value).splitlines()
    assert first.startswith("waiting ended as timeout: still running after 1 s, killed, in hang_in_a_library, called")
    assert f"'{file}'" in first
    assert rest == ["before"]
    assert "worker_jobs.py" in file.read_text(encoding="utf-8")

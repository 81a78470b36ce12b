"""Jobs that crash, hang, lie or take too much are blamed alone, by a clock that nobody sets."""

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
from sartor.tuning.workers.pool import Job, JobStatus, WorkerPool
from tests.tuning.workers.running import LIMIT, MIB, gone, run
from tests.tuning.workers.worker_jobs import hang_in_a_library


def test_a_crash_is_blamed_on_its_job_alone(pool: WorkerPool) -> None:
    jobs = [(str(i), {"seconds": 0.05}) for i in range(4)]
    mixed: list[Job] = [*jobs[:2], ("bad", {"seconds": "not a number"}), *jobs[2:]]
    results = {r.job_id: r.status for r in pool.map_unordered("worker_jobs:process", mixed, 10)}
    assert results == {"bad": JobStatus.FAILED} | {job_id: JobStatus.OK for job_id, _ in jobs}

    crash = run(pool, "crash", saying="assertion `tiles > 0' failed")
    assert crash.status is JobStatus.CRASHED
    assert "SIGABRT" in crash.message
    assert "assertion `tiles > 0' failed" in crash.message
    assert run(pool, "add", left=1, right=2).value == 3


def test_crashes_do_not_disturb_jobs_that_run_beside_them(pool: WorkerPool) -> None:
    crashing = {"0", "3", "4"}
    jobs = ((str(i), {"name": "SIGSEGV" if str(i) in crashing else "SIGURG"}) for i in range(8))
    results = {r.job_id: r.status for r in pool.map_unordered("worker_jobs:die_of", jobs, 10)}
    assert {job for job, status in results.items() if status is JobStatus.CRASHED} == crashing
    assert {job for job, status in results.items() if status is JobStatus.OK} == {"1", "2", "5", "6", "7"}


def test_a_segmentation_fault_is_named(pool: WorkerPool) -> None:
    result = run(pool, "segfault")
    assert result.status is JobStatus.CRASHED
    assert "SIGSEGV" in result.message


def test_leaving_the_process_is_a_crash(pool: WorkerPool) -> None:
    result = run(pool, "leave", status=3)
    assert result.status is JobStatus.CRASHED
    assert "exited with status 3" in result.message


def test_a_hang_is_killed_with_all_it_started(pool: WorkerPool, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    begin = time.monotonic()
    result = run(pool, "hang_with_child", timeout=1.0, pids=str(pids))
    assert result.status is JobStatus.TIMEOUT
    assert "1 s" in result.message
    assert time.monotonic() - begin < 10
    assert all(gone(int(pid)) for pid in pids.read_text(encoding="ascii").split())
    assert run(pool, "add", left=1, right=2).value == 3


def test_other_jobs_go_on_during_a_hang(pool: WorkerPool) -> None:
    jobs: list[Job] = [("hang", {"seconds": 60}), *((str(i), {"seconds": 0.0}) for i in range(20))]
    results = list(pool.map_unordered("worker_jobs:process", jobs, 1.0))
    assert [r.job_id for r in results if r.status is not JobStatus.OK] == ["hang"]
    assert len(results) == 21
    assert results[-1].job_id == "hang"


def test_at_the_deadline_what_runs_is_killed_and_nothing_more_starts(pool: WorkerPool) -> None:
    assert run(pool, "add", left=1, right=2).value == 3
    jobs: list[Job] = [("short", {"seconds": 0.0}), *((f"long {i}", {"seconds": 60}) for i in range(5))]
    begin = time.monotonic()
    results = list(pool.map_unordered("worker_jobs:process", jobs, 100, deadline=begin + 1.5))
    assert [result.job_id for result in results] == ["short"]
    assert time.monotonic() - begin < 10
    assert run(pool, "add", left=1, right=2).value == 3


def test_after_the_deadline_no_job_starts(pool: WorkerPool) -> None:
    jobs: list[Job] = [("late", {"left": 1, "right": 2})]
    assert list(pool.map_unordered("worker_jobs:add", jobs, 10, deadline=time.monotonic() - 1)) == []


def test_memory_is_limited_per_job(pool: WorkerPool) -> None:
    assert run(pool, "allocate", size=LIMIT // 2).value == LIMIT // 2
    result = run(pool, "allocate", size=2 * LIMIT)
    assert result.status is JobStatus.OUT_OF_MEMORY
    assert "Unable to allocate" in result.message
    assert run(pool, "allocate", size=LIMIT // 2).value == LIMIT // 2


def test_running_out_of_memory_in_native_code_is_told_from_a_crash(pool: WorkerPool) -> None:
    assert run(pool, "crash", saying="what():  std::bad_alloc").status is JobStatus.OUT_OF_MEMORY


def test_mapped_files_do_not_count_as_memory(pool: WorkerPool, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(4 * LIMIT)
    assert run(pool, "read_mapped", path=str(weights)).value == 4 * LIMIT


def test_a_leaking_worker_is_replaced_before_the_next_job_pays_for_it(pool: WorkerPool) -> None:
    pids = [run(pool, "leak", size=LIMIT * 3 // 4).value for _ in range(3)]
    assert None not in pids
    assert len(set(pids)) == 3


def test_output_reported_with_a_crash_is_bounded_and_the_jobs_own(pool: WorkerPool) -> None:
    run(pool, "chatter", lines=3)
    assert "xxx" not in run(pool, "crash", saying="bye").message
    message = run(pool, "crash", saying="start" + "z" * MIB + "end").message
    assert len(message) < 10_000
    assert "zzzend" in message


def test_closing_early_kills_what_runs_and_the_pool_goes_on(pool: WorkerPool, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    results = pool.map_unordered(
        "worker_jobs:announce_and_sleep", [("bad", {}), ("sleep", {"pids": str(pids)})], timeout=60
    )
    assert next(iter(results)).job_id == "bad"
    while not (pids.exists() and pids.read_text(encoding="ascii")):
        time.sleep(0.01)
    results.close()  # type: ignore[attr-defined]
    assert gone(int(pids.read_text(encoding="ascii")))
    assert run(pool, "add", left=1, right=2).value == 3


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


@pytest.mark.parametrize("jump", [-1e6, 1e6], ids=["back", "forth"])
def test_a_clock_that_jumps_ends_no_job_and_keeps_none(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time
    jobs = [(str(index), {"seconds": 0.05}) for index in range(4)]
    statuses = []
    for result in pool.map_unordered("worker_jobs:process", jobs, 10, deadline=time.monotonic() + 60):
        statuses.append(result.status)
        monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert statuses == [JobStatus.OK] * len(jobs)
    (hung,) = pool.map_unordered("worker_jobs:process", [("hang", {"seconds": 60})], 0.5)
    assert hung.status is JobStatus.TIMEOUT

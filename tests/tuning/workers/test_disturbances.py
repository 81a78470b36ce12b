"""Failures with external causes are distinguished from a job's own failures, and the job runs again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sartor.errors import DisturbedError, SartorError
from sartor.tuning.workers.disturbances import Usage, computed_by_groups, computed_seconds, is_disk_full
from sartor.tuning.workers.pool import Job, JobStatus, WorkerPool
from tests.tuning.workers.running import LIMIT, run

_HOG = "import os\nos.sched_setaffinity(0, {one})\nwhile True: pass"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_what_is_killed_from_outside_has_not_crashed(pool: WorkerPool, name: str) -> None:
    result = run(pool, "die_of", name=name)
    assert (result.status, result.status.is_transient) == (JobStatus.KILLED, True)
    assert name in result.message


def test_the_reason_of_a_second_try_does_not_announce_output_that_it_leaves_out(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(pool, "die_of", name="SIGKILL", saying="half done")
    assert result.message.endswith("; its last output:\nhalf done")
    assert "(killed: the process was killed from outside by SIGKILL), what it did is tried again" in caplog.text
    assert "its last output" not in caplog.text


def test_what_the_kernel_kills_for_memory_was_short_of_it(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count()
    monkeypatch.setattr("sartor.tuning.workers.process.oom_kills", lambda: next(counts))
    result = run(pool, "die_of", name="SIGKILL")
    assert (result.status, result.status.is_transient) == (JobStatus.MEMORY_SHORT, True)


def test_memory_that_the_system_has_promised_to_others_is_not_the_jobs_fault(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sartor.tuning.workers.process.is_memory_promised", lambda limit: limit == LIMIT)
    assert run(pool, "allocate", size=2 * LIMIT).status is JobStatus.MEMORY_SHORT


@pytest.mark.parametrize(
    "job",
    [
        "fill_disk",
        "fill_disk_within",
        "fill_disk_by_message",
        "exhaust_disk",
        "fill_disk_with_weights",
        "fill_disk_and_crash",
        "exhaust_disk_and_crash",
    ],
)
def test_a_full_disk_is_nobodys_failure(job: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = f"no room on the disk: disk_full: .*make some where '{tmp_path}' is, or set TMPDIR"
    with WorkerPool(1, env={"TMPDIR": str(tmp_path)}) as pool, pytest.raises(SartorError, match=room):
        run(pool, job)
    assert "disturbed (disk_full" in caplog.text
    said = "out of disk space" if job == "fill_disk_with_weights" else "No space left on device"
    assert said in caplog.text or job.endswith("_and_crash")


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("stdio_stream.c:399: UNKNOWN; write failed, possibly out of disk space or device lost", True),
        ("file_handle.c:385: OUT_OF_RANGE; failed to extend file 'x' (out of disk space or permission denied)", True),
        ("file_handle.c:373: NOT_FOUND; failed to open file 'x'", False),
    ],
)
def test_irees_words_for_a_full_disk_are_understood(said: str, full: bool) -> None:
    assert is_disk_full(RuntimeError(f"Error building parameter archive: {said}")) is full


@pytest.mark.parametrize("how", ["fill_disk", "die_of_kill", "die_of_stop"])
def test_what_was_disturbed_runs_again_once_and_alone(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sartor.tuning.workers.pool._HEARTBEAT", 0.1)
    monkeypatch.setattr("sartor.tuning.workers.process._STOPPED_SECONDS", 0.2)
    marker = str(tmp_path / "marker")
    others = [(str(i), {"marker": "", "how": "", "seconds": 0.1}) for i in range(6)]
    jobs: list[Job] = [("bad", {"marker": marker, "how": how, "seconds": 0.0}), *others]
    with WorkerPool(2) as pool:
        results = list(pool.map_unordered("worker_jobs:fail_first", jobs, 20))
    assert {result.status for result in results} == {JobStatus.OK}
    assert sorted(result.job_id for result in results) == sorted(each for each, _ in jobs)
    assert results[-1].job_id == "bad"
    assert results[-1].value[0] >= max(result.value[1] for result in results[:-1]), "others had ended"


def test_who_fails_by_himself_does_not_run_again(pool: WorkerPool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert run(pool, "fail_first", marker=str(marker), how="fail", seconds=0.0).status is JobStatus.FAILED


def test_a_job_that_others_keep_from_computing_is_starved(pool: WorkerPool) -> None:
    """Both on one processor, the other much more urgent than the job."""
    one = frozenset([min(os.sched_getaffinity(0))])
    jobs: list[Job] = [("job", {"niceness": 19})]
    hogs = [subprocess.Popen([sys.executable, "-c", _HOG.format(one=set(one))]) for _ in range(2)]
    try:
        (result,) = pool.map_unordered("worker_jobs:compute_for_ever", jobs, 2.0, affinity=one)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert result.status is JobStatus.STARVED


def test_processor_time_of_groups_is_that_of_their_processes() -> None:
    spinning = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", spinning], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert computed_by_groups([other.pid]) == pytest.approx(computed_seconds(other.pid), abs=0.02)
        assert computed_by_groups([other.pid]) >= 0.2
        assert computed_by_groups([]) == 0
        other.kill()


def test_usage_tells_whose_fault_waiting_is() -> None:
    start = Usage(moment=0.0, computed=1.0, waited=0.0, others=10.0)
    assert Usage(10.0, 2.0, 9.0, 19.0).was_starved(start)
    assert not Usage(10.0, 11.0, 0.0, 10.0).was_starved(start), "it computed all the time"
    assert not Usage(10.0, 1.0, 0.1, 20.0).was_starved(start), "it slept while others computed"
    assert not Usage(10.0, 3.0, 30.0, 10.0).was_starved(start), "its threads waited for each other"


@pytest.mark.parametrize("how", ["die_of_kill", "die_of_stop", "fill_disk"])
def test_a_worker_that_is_disturbed_while_it_starts_is_replaced(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with disturbed_at_start(how, 2, tmp_path, monkeypatch) as pool:
        assert run(pool, "add", left=1, right=1).value == 2
    assert caplog.text.count("disturbed while it started") == 2


@pytest.mark.parametrize(
    ("how", "message"), [("die_of_kill", "killed: .*SIGKILL"), ("fill_disk", "disk_full: .*space")]
)
def test_workers_that_are_always_disturbed_while_they_start_are_given_up(
    how: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        disturbed_at_start(how, 100, tmp_path, monkeypatch) as pool,
        pytest.raises(DisturbedError, match=f"could not start: {message}"),
    ):
        run(pool, "add", left=1, right=1)
    assert len((tmp_path / "starts").read_text(encoding="ascii")) == 3


def disturbed_at_start(how: str, times: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    """Return a pool whose first ``times`` starts of a worker are disturbed."""
    monkeypatch.setattr("sartor.tuning.workers.pool._HEARTBEAT", 0.1)
    monkeypatch.setattr("sartor.tuning.workers.process._STOPPED_SECONDS", 0.2)
    env = {"STARTS": str(folder / "starts"), "TIMES": str(times), "HOW": how}
    return WorkerPool(1, initializer="worker_jobs:be_disturbed_at_start", env=env)

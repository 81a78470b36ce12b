"""Jobs that crash, hang or take too much are blamed alone."""

from __future__ import annotations

import time
from pathlib import Path

from sartor.tuning.workers.pool import Job, JobStatus, WorkerPool
from tests.tuning.workers.running import LIMIT, MIB, gone, run


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

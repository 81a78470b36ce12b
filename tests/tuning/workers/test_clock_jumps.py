"""Jobs are timed by a clock that nobody sets."""

from __future__ import annotations

import time

import pytest

from sartor.tuning.workers.pool import JobStatus, WorkerPool


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

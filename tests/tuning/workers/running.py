"""Jobs of the tests, run by a pool, and what becomes of its processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sartor.tuning.workers.pool import JobResult, WorkerPool

MIB = 1 << 20
LIMIT = 128 * MIB


def run(pool: WorkerPool, job: str, timeout: float = 20.0, **arguments: Any) -> JobResult:
    (result,) = pool.map_unordered(f"worker_jobs:{job}", [("job", arguments)], timeout)
    assert result.job_id == "job"
    return result


def both_started(pool: WorkerPool) -> set[int]:
    """The processes of the pool's two workers."""
    pids: set[int] = set()
    while len(pids) < 2:
        jobs = [(str(i), {"seconds": 0.05}) for i in range(4)]
        pids |= {result.value for result in pool.map_unordered("worker_jobs:process", jobs, 10)}
    assert len(pids) == 2
    return pids


def gone(pid: int, patience: float = 5.0) -> bool:
    """Whether the process ends (a zombie has) within ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False

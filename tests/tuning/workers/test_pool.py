"""A pool of workers: jobs, results, what they share, and their end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.errors import SartorError
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.pool import JobStatus, WorkerPool
from tests.tuning.workers.running import MIB, both_started, gone, run

HERE = Path(__file__).parent


def test_every_job_gives_one_result(pool: WorkerPool) -> None:
    jobs = ((f"job {i}", {"left": i, "right": 1}) for i in range(200))
    results = list(pool.map_unordered("worker_jobs:add", jobs, 10))
    assert {result.job_id: result.value for result in results} == {f"job {i}": i + 1 for i in range(200)}
    assert {result.status for result in results} == {JobStatus.OK}
    assert not any(result.message for result in results)


def test_statuses_of_jobs_are_statuses_of_measurements_but_for_failing() -> None:
    assert {status.value for status in JobStatus} - {status.value for status in Status} == {"failed"}
    transient = {status.value for status in JobStatus if status.is_transient}
    assert (
        transient
        == {status.value for status in Status if status.is_transient}
        == {
            "killed",
            "starved",
            "memory_short",
            "disk_full",
        }
    )


def test_no_jobs_give_no_results(pool: WorkerPool) -> None:
    assert list(pool.map_unordered("worker_jobs:add", [], 10)) == []


def test_workers_persist_and_start_once(pool: WorkerPool) -> None:
    pids = both_started(pool)
    assert both_started(pool) == pids
    started = run(pool, "starts").value
    assert len(started) == 1
    assert started[0] in pids


def test_jobs_are_taken_as_workers_become_free(pool: WorkerPool) -> None:
    taken = 0

    def jobs() -> Iterator[tuple[str, dict[str, int]]]:
        nonlocal taken
        for i in range(30):
            taken += 1
            yield str(i), {"left": i, "right": 0}

    for done, _ in enumerate(pool.map_unordered("worker_jobs:add", jobs(), 10)):
        assert taken <= done + 2 * 2 + 1
    assert taken == 30


def test_seconds_are_the_functions_own(pool: WorkerPool) -> None:
    result = run(pool, "process", seconds=0.2)
    assert 0.2 <= result.seconds < 1


def test_large_arguments_and_results(pool: WorkerPool) -> None:
    data = np.arange(50 * MIB, dtype=np.uint32).astype(np.uint8)
    with WorkerPool(1) as unlimited:
        result = run(unlimited, "double", data=data)
    np.testing.assert_array_equal(result.value, data * np.uint8(2))


def test_an_exception_is_one_line_and_not_the_end(pool: WorkerPool) -> None:
    before = run(pool, "starts").value
    result = run(pool, "fail")
    assert (result.status, result.value) == (JobStatus.FAILED, None)
    assert result.message == "ValueError: first line second line"
    assert run(pool, "starts").value == before


def test_sartors_own_errors_are_said_as_they_are(pool: WorkerPool) -> None:
    assert run(pool, "fail_as_sartor").message == "node 'Conv_3' does not compile: use another routine"


@pytest.mark.parametrize(("job", "message"), [("no_such_job", "AttributeError"), ("unpicklable", "lambda")])
def test_jobs_that_cannot_be_called_or_answered_fail(pool: WorkerPool, job: str, message: str) -> None:
    result = run(pool, job)
    assert result.status is JobStatus.FAILED
    assert message in result.message
    assert run(pool, "add", left=1, right=2).value == 3


def test_a_job_that_prints_a_lot_is_not_held_up(pool: WorkerPool) -> None:
    assert run(pool, "chatter", timeout=15, lines=5000).value == 5000


def test_warnings_of_jobs_are_logged_in_the_parent_each_once(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in ("sartor.frontend.some_job", "sartor.frontend.some_job", "of_another_library"):
        run(pool, "warn", texts=["weights hold NaN", "weights hold NaN", "100 % sure"], logger=logger)
    name = "sartor.frontend.some_job"
    assert caplog.record_tuples == [
        (name, logging.WARNING, "weights hold NaN"),
        (name, logging.WARNING, "100 % sure"),
    ]


def test_a_job_that_warns_without_end_is_cut_short(pool: WorkerPool, caplog: pytest.LogCaptureFixture) -> None:
    run(pool, "warn", texts=[f"{i} {'x' * 5000}" for i in range(1000)], logger="sartor.endless")
    assert len(caplog.messages) == 21
    assert max(map(len, caplog.messages)) == 1000
    assert caplog.messages[-1] == "980 more warnings of the same job are left out"


def test_one_map_at_a_time(pool: WorkerPool) -> None:
    jobs = [(str(i), {"left": i, "right": 0}) for i in range(5)]
    for _ in pool.map_unordered("worker_jobs:add", jobs, 10):
        with pytest.raises(RuntimeError, match="already running"):
            run(pool, "add", left=1, right=1)


def test_quiet_jobs_run_alone_in_one_process(pool: WorkerPool) -> None:
    both_started(pool)
    busy = [(str(i), {"seconds": 0.02}) for i in range(8)]
    asked, periods = [time.monotonic()], []
    for result in pool.map_unordered("worker_jobs:period", busy, 10, quiet=True):
        periods.append(result.value)
        time.sleep(0.03)
        asked.append(time.monotonic())
    assert len({pid for pid, _, _ in periods}) == 1
    assert all(begin >= ready for (_, begin, _), ready in zip(periods, asked, strict=False))


def test_quiet_jobs_wait_until_every_worker_has_started(tmp_path: Path) -> None:
    """The first worker to start does both jobs, while the second still starts."""
    first = str(tmp_path / "first")
    with WorkerPool(2, initializer="worker_jobs:start_slowly_unless_first", env={"FIRST": first}) as pool:
        jobs = [(str(i), {"seconds": 0.0}) for i in range(2)]
        pids = {result.value for result in pool.map_unordered("worker_jobs:process", jobs, 10)}
        assert len(pids) == 1
        (result,) = pool.map_unordered("worker_jobs:period", jobs[:1], 10, quiet=True)
    assert result.value[1] >= float(Path(f"{first}.second-started-at").read_text(encoding="ascii"))


def test_affinity_binds_all_threads_of_the_jobs_and_ends_with_them(pool: WorkerPool) -> None:
    available = frozenset(os.sched_getaffinity(0))
    one = frozenset([min(available)])

    def bound(affinity: frozenset[int] | None) -> Any:
        jobs = [("job", dict[str, Any]())]
        (result,) = pool.map_unordered("worker_jobs:affinity", jobs, 10, quiet=True, affinity=affinity)
        return result.value

    assert bound(None) == (available, available)
    assert bound(one) == (one, one)
    assert bound(None) == (available, available)


def test_environment_reaches_workers(pool: WorkerPool) -> None:
    assert run(pool, "environment", name="GREETING").value == "hello"
    assert "GREETING" not in os.environ


@pytest.mark.parametrize(
    ("initializer", "message", "patience"),
    [
        ("refuse_to_start", "no compiler here", 60),
        ("crash_at_start", "SIGABRT", 60),
        ("hang_at_start", "0.5 s", 0.5),
    ],
)
def test_a_worker_that_cannot_start_is_one_error(initializer: str, message: str, patience: float) -> None:
    with (
        WorkerPool(1, initializer=f"worker_jobs:{initializer}", start_timeout=patience) as pool,
        pytest.raises(SartorError, match=rf"(?s)could not start.*{message}"),
    ):
        run(pool, "add", left=1, right=1)


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="at least one"):
        WorkerPool(0)


def test_workers_leave_interrupts_to_the_parent(pool: WorkerPool) -> None:
    assert run(pool, "die_of", name="SIGINT").status is JobStatus.OK


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, sent: signal.Signals) -> None:
    """The handler is set anew: what runs in a shell's background inherits that interrupts are ignored."""
    pids = tmp_path / "pid"
    program = (
        f"import signal, sys; sys.path.insert(0, {str(HERE)!r})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sartor.tuning.workers.pool import WorkerPool\n"
        "with WorkerPool(1) as pool:\n"
        f"    jobs = [('job', {{'pids': {str(pids)!r}}})]\n"
        "    list(pool.map_unordered('worker_jobs:announce_and_sleep', jobs, 60))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as parent:
        while not (pids.exists() and pids.read_text(encoding="ascii")):
            time.sleep(0.01)
        begin = time.monotonic()
        parent.send_signal(sent)
        _, errors = parent.communicate(timeout=10)
        assert time.monotonic() - begin < 5
    assert gone(int(pids.read_text(encoding="ascii")))
    assert parent.returncode == -sent
    assert ("KeyboardInterrupt" in errors) == (sent is signal.SIGINT)

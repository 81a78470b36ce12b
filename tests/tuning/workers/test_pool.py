from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.errors import DisturbedError, SartorError
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.channel import Channel, wait
from sartor.tuning.workers.disturbances import Usage, is_disk_full, is_stopped
from sartor.tuning.workers.pool import Job, JobResult, JobStatus, WorkerPool

HERE = Path(__file__).parent
MIB = 1 << 20
LIMIT = 128 * MIB
_HOG = "import os\nos.sched_setaffinity(0, {one})\nwhile True: pass"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and process death are tested on Linux")


@pytest.fixture(scope="module", autouse=True)
def _jobs_module() -> Iterator[None]:
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def pool(_jobs_module: None) -> Iterator[WorkerPool]:
    with WorkerPool(2, initializer="worker_jobs:initialize", memory_limit=LIMIT, env={"GREETING": "hello"}) as pool:
        yield pool


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


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_what_is_killed_from_outside_has_not_crashed(pool: WorkerPool, name: str) -> None:
    result = run(pool, "die_of", name=name)
    assert (result.status, result.status.is_transient) == (JobStatus.KILLED, True)
    assert name in result.message


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
    assert {each.status for each in results} == {JobStatus.OK}
    assert sorted(each.job_id for each in results) == sorted(each for each, _ in jobs)
    assert results[-1].job_id == "bad"
    assert results[-1].value[0] >= max(each.value[1] for each in results[:-1]), "others had ended"


def test_who_fails_by_himself_does_not_run_again(pool: WorkerPool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert run(pool, "fail_first", marker=str(marker), how="fail", seconds=0.0).status is JobStatus.FAILED


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


def test_usage_tells_whose_fault_waiting_is() -> None:
    start = Usage(moment=0.0, computed=1.0, waited=0.0, others=10.0)
    assert Usage(10.0, 2.0, 9.0, 19.0).was_starved(start)
    assert not Usage(10.0, 11.0, 0.0, 10.0).was_starved(start), "it computed all the time"
    assert not Usage(10.0, 1.0, 0.1, 20.0).was_starved(start), "it slept while others computed"
    assert not Usage(10.0, 3.0, 30.0, 10.0).was_starved(start), "its threads waited for each other"


def test_mapped_files_do_not_count_as_memory(pool: WorkerPool, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(4 * LIMIT)
    assert run(pool, "read_mapped", path=str(weights)).value == 4 * LIMIT


def test_a_leaking_worker_is_replaced_before_the_next_job_pays_for_it(pool: WorkerPool) -> None:
    pids = [run(pool, "leak", size=LIMIT * 3 // 4).value for _ in range(3)]
    assert None not in pids
    assert len(set(pids)) == 3


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
    """A pool whose workers are disturbed the first so many times that one starts."""
    monkeypatch.setattr("sartor.tuning.workers.pool._HEARTBEAT", 0.1)
    monkeypatch.setattr("sartor.tuning.workers.process._STOPPED_SECONDS", 0.2)
    env = {"STARTS": str(folder / "starts"), "TIMES": str(times), "HOW": how}
    return WorkerPool(1, initializer="worker_jobs:be_disturbed_at_start", env=env)


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

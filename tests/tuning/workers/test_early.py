"""Workers that start before they are needed, as copies or interpreters, and calls beside a pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sartor.tuning.workers.pool import JobStatus, WorkerPool
from sartor.tuning.workers.sharing import Turns
from sartor.tuning.workers.starting import interpreters
from sartor.tuning.workers.starting.interpreters import Interpreter, start_early
from tests.tuning.workers import copied_program
from tests.tuning.workers.running import MIB, gone, run

MODULE = "colorsys"


@pytest.fixture
def waiting() -> Iterator[Interpreter]:
    """An interpreter that waits, which has imported a module."""
    start_early("no.such.module", MODULE)
    (only,) = interpreters._WAITING
    yield only
    interpreters._WAITING.clear()
    only.process.kill()
    only.process.wait()


def test_a_pool_takes_an_interpreter_that_waits(waiting: Interpreter, tmp_path: Path) -> None:
    with WorkerPool(2, env={"TMPDIR": str(tmp_path)}) as pool:
        # What it imports before its first job depends on when that arrives.
        assert run(pool, "surroundings", module=MODULE).value[:2] == (waiting.process.pid, str(tmp_path))
        pool.close()
        pid, folder, is_imported = run(pool, "surroundings", module=MODULE).value
        assert (folder, is_imported) == (str(tmp_path), False)
        assert pid != waiting.process.pid


def test_needs_are_got_in_order_and_the_later_ones_after_the_first_job() -> None:
    start_early("bdb", "sartor.no_such_module:name", "worker_jobs_of_nobody", "cmd", later=("colorsys",))
    with WorkerPool(1) as pool:
        assert not run(pool, "surroundings", module="colorsys").value[2]
        time.sleep(0.3)
        loaded = [run(pool, "surroundings", module=name).value[2] for name in ("bdb", "cmd", "colorsys")]
    # How far it came before the first job depends on when that arrived.
    assert loaded[2]
    assert loaded[:2] in ([True, True], [True, False], [False, False])


def test_a_need_that_fails_ends_no_worker() -> None:
    # It raises an OSError, as there is no child to wait for.
    start_early("os:wait", MODULE)
    (only,) = interpreters._WAITING
    time.sleep(0.3)
    with WorkerPool(1) as pool:
        assert run(pool, "process", seconds=0).value == only.process.pid


def test_what_libraries_read_at_their_start_needs_a_new_interpreter(waiting: Interpreter) -> None:
    with WorkerPool(1, env={"OMP_NUM_THREADS": "1"}) as pool:
        assert run(pool, "process", seconds=0).value != waiting.process.pid
    assert [waiting] == interpreters._WAITING


def test_an_interpreter_that_died_is_not_taken(waiting: Interpreter) -> None:
    waiting.process.kill()
    waiting.process.wait()
    with WorkerPool(1) as pool:
        assert run(pool, "process", seconds=0).value != waiting.process.pid


def test_one_that_nobody_takes_ends_with_its_parent(waiting: Interpreter) -> None:
    assert waiting.owner == os.getpid()
    waiting.connection.close()
    assert gone(waiting.process.pid)


def test_a_call_goes_on_beside_jobs(pool: WorkerPool) -> None:
    data = np.arange(20 * MIB, dtype=np.uint32).astype(np.uint8)
    ahead = pool.ahead("worker_jobs:process", {"seconds": 1.0}, "a call", 20)
    large = pool.ahead("worker_jobs:double", {"data": data}, "a large one", 20)
    assert ahead is not None
    assert large is not None
    assert run(pool, "add", left=1, right=2).value == 3
    assert ahead.value() not in (None, os.getpid())
    np.testing.assert_array_equal(large.value(), data * np.uint8(2))


def test_what_fails_says_how(pool: WorkerPool) -> None:
    failing, missing = (pool.ahead(f"worker_jobs:{name}", {}, name, 20) for name in ("fail", "no_such_job"))
    for each in (failing, missing):
        assert each is not None
        assert each.value() is None
        assert each.result().status is JobStatus.FAILED


def test_a_disturbance_is_told_and_an_end_that_is_wanted_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with WorkerPool(1) as own:
        disturbed, wanted = (own.ahead("signal:pause", {}, "a call", 60) for _ in range(2))
        assert disturbed is not None
        assert wanted is not None
        os.killpg(disturbed._worker.group, signal.SIGKILL)
        assert disturbed.value() is None
        told = [record for record in caplog.records if "what it did is tried again" in record.getMessage()]
        assert len(told) == 1
    assert wanted.value() is None
    assert told == [record for record in caplog.records if "what it did is tried again" in record.getMessage()]


def test_measuring_waits_for_the_end(pool: WorkerPool) -> None:
    begun = time.monotonic()
    assert pool.ahead("worker_jobs:process", {"seconds": 1.0}, "a call", 20) is not None
    list(pool.map_unordered("worker_jobs:add", [("sum", {"left": 1, "right": 2})], 10, quiet=True))
    assert time.monotonic() - begun >= 1.0


def test_closing_the_pool_ends_the_call() -> None:
    begun = time.monotonic()
    with WorkerPool(1) as own:
        slow = own.ahead("signal:pause", {}, "a call", 60)
        assert slow is not None
        process = slow._worker.group
    assert time.monotonic() - begun < 30
    assert gone(process)
    assert slow.value() is None


def test_nothing_begins_while_another_compilation_measures(tmp_path: Path) -> None:
    turns, others = Turns(tmp_path / "lock"), Turns(tmp_path / "lock")
    with WorkerPool(1, turns=turns) as own:
        with others.turn(alone=True, deadline=time.monotonic() + 5):
            assert own.ahead("signal:pause", {}, "a call", 60) is None
        ahead = own.ahead("worker_jobs:add", {"left": 1, "right": 2}, "a call", 60)
        assert ahead is not None
        assert ahead.value() == 3
        # The turn ends with the call.
        with others.turn(alone=True, deadline=time.monotonic() + 5):
            assert turns.place_beside() is None


ROOT = Path(__file__).parents[3]


def copying(what: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    command = [sys.executable, "-m", copied_program.__name__, what]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("what", ["pools", "ends", "ignores", "threads"])
def test_copies_do_what_programs_do(what: str) -> None:
    done = copying(what)
    assert done.returncode == 0, done.stderr
    # What this process had not written yet a copy does not write again.
    assert done.stdout.count("not yet written") == (what == "pools")


def test_copies_that_nobody_takes_end_with_their_parent() -> None:
    pids = [int(pid) for pid in copying("nobody").stdout.split()]
    assert len(pids) == 2
    assert all(map(gone, pids))

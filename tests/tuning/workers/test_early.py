"""Interpreters that start before a pool needs them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.starting import interpreters
from sartor.tuning.workers.starting.interpreters import Interpreter, start_early
from tests.tuning.workers.running import gone, run

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

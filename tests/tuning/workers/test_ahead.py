"""A call that goes on beside a pool, until that measures or is closed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from sartor.tuning.workers.pool import JobStatus, WorkerPool
from sartor.tuning.workers.sharing import Turns
from tests.tuning.workers.running import MIB, gone, run


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

"""Runs beside others: asynchronous ones, those of several threads, and of processes that were forked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.session import Session
from tests.runtime.mapping.test_huge_pages import refused

Feeds = dict[str, Array]


def _numeric(feeds: Feeds) -> tuple[Array, Array]:
    return feeds["x"], feeds["größe"]


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_waited_for_any_time_that_is_one(model: Path, feeds: Feeds, threads: int) -> None:
    with Session(model, threads=threads) as session:
        run = session.run_async(None, feeds)
        for wrong in (-1, float("nan"), "1"):
            with pytest.raises(UsageError, match="timeout is"):
                run.result(wrong)  # type: ignore[arg-type]
        for long in (float("inf"), threading.TIMEOUT_MAX, 1e300):
            assert len(run.result(long)) == len(run.device_result(long))


def test_a_run_beside_others_says_that_no_thread_can_be_started(
    model: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refused)
    with Session(model, threads=1) as session:
        monkeypatch.setattr(session._execution, "_has_async_entry", False)
        with pytest.raises(DeviceError, match="can't start new thread; call run instead"):
            session.run_async(None, feeds)
        assert session.run(None, feeds)


@pytest.mark.parametrize("threads", [1, 2])
def test_asynchronous_runs_give_the_same(model: Path, feeds: Feeds, threads: int) -> None:
    with Session(model, threads=threads) as session:
        runs = [session.run_async(["product"], feeds | {"x": feeds["x"] * i}) for i in range(8)]
        for i, run in enumerate(runs):
            np.testing.assert_allclose(run.result(timeout=60)[0], i * np.multiply(*_numeric(feeds)), rtol=1e-6)
            assert run.done()


def test_an_asynchronous_run_can_be_awaited(model: Path, feeds: Feeds) -> None:
    import asyncio

    async def both(session: Session) -> list[list[Array]]:
        return await asyncio.gather(*(_await(session, feeds) for _ in range(2)))

    async def _await(session: Session, feeds: Feeds) -> list[Array]:
        return await session.run_async(["sum"], feeds)

    with Session(model) as session:
        for [total] in asyncio.run(both(session)):
            np.testing.assert_array_equal(total, np.add(*_numeric(feeds)))


def test_a_failing_asynchronous_run_reports_it(foreign: Path) -> None:
    spec = TensorSpec("a", "float32", (2, 3))
    with Session(foreign, signature=Signature("f64", (spec,), (spec,))) as session:
        run = session.run_async(None, {"a": np.zeros((2, 3), np.float32)})
        with pytest.raises(DeviceError, match="element type mismatch"):
            run.result(timeout=60)
        assert run.done()


@pytest.mark.parametrize("threads", [1, 2])
def test_closing_waits_and_refuses_more(model: Path, feeds: Feeds, threads: int) -> None:
    session = Session(model, threads=threads)
    run = session.run_async(["sum"], feeds)
    session.close()
    session.close()
    assert run.done()
    np.testing.assert_array_equal(run.result()[0], np.add(*_numeric(feeds)))
    for call in (session.run, session.run_async):
        with pytest.raises(UsageError, match="session is closed"):
            call(None, feeds)


def test_a_run_beside_the_end_of_a_session_is_refused(
    model: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(model, threads=1)
    monkeypatch.setattr(session._execution, "_has_async_entry", False)
    session.run_async(None, feeds).result()
    executor = session._execution._own_thread._executor
    assert executor is not None

    def shutdown() -> None:
        ThreadPoolExecutor.shutdown(executor)
        with pytest.raises(UsageError, match="the session is closed"):
            session.run_async(None, feeds)

    monkeypatch.setattr(executor, "shutdown", shutdown)
    session.close()


def test_who_asks_for_a_run_does_not_wait_for_the_one_before(
    model: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device of one thread, the second call returned when the first run had finished."""
    may_go_on = threading.Event()
    with Session(model, threads=1) as session:
        program = session._execution.open_program()
        invoke = program.invoke

        def held_up(*arguments: Any) -> list[Any]:
            may_go_on.wait(2)
            return invoke(*arguments)

        monkeypatch.setattr(program, "invoke", held_up)
        first, second = (session.run_async(["sum"], feeds) for _ in range(2))
        assert not first.done()
        may_go_on.set()
        for run in (first, second):
            np.testing.assert_array_equal(run.result()[0], np.add(*_numeric(feeds)))


def test_a_forgotten_session_waits_too(model: Path, feeds: Feeds) -> None:
    for _ in range(20):
        session = Session(model, threads=6)
        run = session.run_async(["sum"], feeds)
        del session
        assert run.done()
    np.testing.assert_array_equal(run.result()[0], np.add(*_numeric(feeds)))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_session(model: Path, feeds: Feeds, threads: int) -> None:
    wrong: list[int] = []

    def work(factor: int) -> None:
        for _ in range(50):
            [total] = session.run(["sum"], feeds | {"x": feeds["x"] * factor})
            if not np.array_equal(total, feeds["x"] * factor + feeds["größe"]):
                wrong.append(factor)

    with Session(model, threads=threads) as session:
        workers = [threading.Thread(target=work, args=(factor,)) for factor in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not wrong


_FORK = """
import os, sys
import numpy as np
from sartor.errors import UsageError
from sartor.runtime.session import Session
session = Session(sys.argv[1], threads=int(sys.argv[2]))
feeds = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
session.run(None, feeds)
pending = session.run_async(None, feeds)
child = os.fork()
try:
    outputs = session.run(None, feeds), session.run_async(None, feeds).result()
    said = f"ran {len(outputs)}"
except UsageError as error:
    said = str(error)
with Session(sys.argv[1], threads=int(sys.argv[2])) as own:
    own.run(None, feeds)
os.write(1, bytes(f"{'child' if child == 0 else 'parent'} {said}", 'ascii') + bytes([10]))
if child:
    pending.result()
    assert os.waitpid(child, 0)[1] == 0
session.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("threads", "said"), [("1", "child ran 2"), ("2", "was opened before this process was forked")]
)
def test_a_forked_process_runs_or_says_why_not(model: Path, threads: str, said: str) -> None:
    """And ends, without waiting for threads that stayed with its parent."""
    command = [sys.executable, "-c", _FORK, str(model), threads]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    child, parent = sorted(result.stdout.splitlines())
    assert said in child
    assert child.startswith("child ")
    assert parent == "parent ran 2"

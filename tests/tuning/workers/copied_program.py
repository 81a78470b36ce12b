"""A program that copies itself, whose only argument says for what; tests run it, as their own process has threads."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.starting import interpreters
from sartor.tuning.workers.starting.copies import copied, may_copy
from sartor.tuning.workers.starting.interpreters import start_early
from tests.tuning.workers.running import run


def pools() -> None:
    """A pool takes copies, which have what this process has, but its files and its handlers, and later interpreters."""
    import colorsys  # noqa: F401 only this process imports it

    sys.stdout.write("not yet written")
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(17))
    logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
    with Path(__file__).open("rb"):
        start_early("bdb", copies=True)
        start_early(copies=True)
    first, second = (each.process.pid for each in interpreters._WAITING)
    with WorkerPool(1) as pool:
        assert run(pool, "surroundings", module="colorsys").value[::2] == (first, True)
        # Its standard files, its connection, where it prints stacks, and the folder that is listed.
        files = run(pool, "open_files").value
        assert len(files) == 6, files
        assert os.getpgid(first) == first
        os.kill(first, signal.SIGTERM)
        assert run(pool, "process", seconds=0).value in (first, second)
        assert run(pool, "process", seconds=0).value == second
        crashed = run(pool, "crash", saying="last words")
        assert (crashed.status.value, "last words" in crashed.message) == ("crashed", True), crashed
        assert run(pool, "surroundings", module="colorsys").value[::2] != (second, True)


def nobody() -> None:
    """Copies that nobody takes end with this process, however it ends."""
    start_early(copies=True)
    start_early(copies=True)
    print(*(each.process.pid for each in interpreters._WAITING), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def ends() -> None:
    """A copy ends with its function, or is killed, and does not run on where it fails."""

    def answer(connection: socket.socket) -> None:
        print("read", connection.recv(99))

    def fail(connection: socket.socket) -> None:
        raise SystemExit("this is wrong")

    def wait(connection: socket.socket) -> None:
        time.sleep(60)

    # It may mean a call for each number up to the limit, which some systems set to a billion.
    with mock.patch.object(os, "closerange", side_effect=AssertionError):
        copy = copied(answer, leads=False)
    assert os.getpgid(copy.pid) == os.getpgid(0)
    assert copy.communicate(b"this") == (None, b"read b'this'\n")
    assert copy.returncode == 0
    failing = copied(fail, leads=True)
    os.waitid(os.P_PID, failing.pid, os.WEXITED | os.WNOWAIT)
    assert b"this is wrong" in failing.communicate(b"unread")[1]
    assert failing.returncode == 1
    # As daemons start programs: the system reaps what ends, and does not say how it ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    reaped = copied(answer, leads=False)
    assert reaped.communicate(b"this") == (None, b"read b'this'\n")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waiting = copied(wait, leads=True)
    for late in (lambda: waiting.wait(0.01), lambda: waiting.communicate(b"", 0.01)):
        try:
            late()
            raise AssertionError("it ended")
        except subprocess.TimeoutExpired:
            pass
    waiting.kill()
    assert waiting.wait() == -signal.SIGKILL


def ignores() -> None:
    """Workers hear how their own processes end, though this process was started to ignore how its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    start_early(copies=True)
    copy = interpreters._WAITING[0].process.pid
    for is_copy in (True, False):
        with WorkerPool(1) as pool:
            assert (run(pool, "process").value == copy) == is_copy
            assert run(pool, "run_by_shell").value == 0


def threads() -> None:
    """A process with threads is not copied."""
    assert may_copy()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    start_early(copies=True)
    end.set()
    thread.join()
    (only,) = interpreters._WAITING
    assert isinstance(only.process, subprocess.Popen)


if __name__ == "__main__":
    {each.__name__: each for each in (pools, nobody, ends, ignores, threads)}[sys.argv[1]]()

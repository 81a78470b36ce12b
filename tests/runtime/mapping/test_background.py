"""Threads whose start nobody waits for."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from typing import Any

import pytest

from sartor.runtime.mapping.background import Background


def refused(*_: object) -> int:
    """What starting a thread does at the limit of threads."""
    raise RuntimeError("can't start new thread")


def test_work_is_waited_for_as_long_as_one_likes() -> None:
    may_end = threading.Event()
    thread = Background(may_end.wait)
    assert not thread.wait(0.01)
    may_end.set()
    assert thread.wait()
    assert thread.wait(0)


def test_a_thread_does_not_wait_for_itself() -> None:
    found: list[bool] = []
    started = threading.Event()

    def work() -> None:
        started.wait()
        found.append(thread.wait())

    thread = Background(work)
    started.set()
    assert thread.wait(30)
    assert found == [True]


def test_work_that_fails_is_over_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    told = threading.Event()

    def note(found: Any) -> None:
        reported.append(found.exc_value)
        told.set()

    def work() -> None:
        raise OSError("no memory")

    monkeypatch.setattr(sys, "unraisablehook", note)
    assert Background(work).wait(30)
    assert told.wait(30)
    assert str(reported[0]) == "no memory"


def test_work_that_no_thread_can_do_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    done: list[bool] = []
    thread = Background(lambda: done.append(True))
    assert not thread.has_begun
    assert thread.wait()
    assert not done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    may_end = threading.Event()
    thread = Background(may_end.wait)
    child = os.fork()
    if child == 0:
        os._exit(0 if thread.wait(0.01) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    may_end.set()
    assert thread.wait()

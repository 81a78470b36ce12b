"""Processes that one test leaves to the next, as starting one takes longer than most of what tests let it do.

A worker that is idle when its pool is closed serves the next pool that would start one like it. Commands that tests run
as their users do start all of theirs, and so do tests of workers themselves.
"""

from __future__ import annotations

import copy
import os
import resource
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from sartor.frontend import import_job
from sartor.onnx_model.preparing import simplify
from sartor.tuning.workers import pool
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.process import WorkerProcess
from sartor.tuning.workers.protocol import Request, Setup
from sartor.tuning.workers.starting import interpreters
from tests.serving_again import SimplifyHere, serve_again, simplify_here

_MOST_WAITING = 4
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
# What a waiting worker is told when it serves again.
_TOLD = ("TMPDIR", "PYTEST_CURRENT_TEST")

_Key = tuple[object, ...]
_kill = WorkerProcess.kill


class _Waiting:
    """Idle workers, by what they would be started with."""

    def __init__(self) -> None:
        self._workers: list[tuple[_Key, WorkerProcess]] = []
        self._lock = threading.Lock()

    def take(self, setup: Setup, env: Mapping[str, str], start_timeout: float) -> WorkerProcess:
        """A worker as by ``WorkerProcess``, one that waited if there is any."""
        if setup.initializer is None:
            setup = Setup(setup.path, entry_point(simplify_here), setup.memory_limit)
        key = _key(setup, env)
        worker = self._found(key)
        if worker is None:
            worker = WorkerProcess(setup, env, start_timeout)
        else:
            # It answers as one that was just started does.
            worker.growth, worker._started, worker._stopped_since = 0, False, None
            worker._begin_anew(start_timeout)
            arguments = {"environment": {**os.environ, **env}, "folder": os.getcwd()}
            worker.channel.send(Request(entry_point(serve_again), arguments, None))
        # Others end with the thread that started them.
        if threading.current_thread() is threading.main_thread():
            worker.__dict__["key"] = key
        return worker

    def _found(self, key: _Key) -> WorkerProcess | None:
        with self._lock:
            alike = [each for each in self._workers if each[0] == key]
            if not alike:
                return None
            self._workers.remove(alike[-1])
        worker = alike[-1][1]
        if worker.alive:
            return worker
        _kill(worker)
        return self._found(key)

    def leave(self, worker: WorkerProcess) -> None:
        """In place of ``WorkerProcess.kill``: let a worker wait that may serve again, and kill others."""
        key = worker.__dict__.get("key")
        if worker.channel.closed or key is None or not worker.idle or worker.is_spent or not worker.alive:
            _kill(worker)
            return
        waiting = copy.copy(worker)
        # Whoever has the worker may end it again, or send it a signal.
        worker.channel, worker._owner = SimpleNamespace(closed=True), 0  # type: ignore[assignment]
        with self._lock:
            self._workers.append((key, waiting))
            superfluous = self._workers[:-_MOST_WAITING]
            del self._workers[:-_MOST_WAITING]
        for _, each in superfluous:
            _kill(each)

    def close(self) -> None:
        """End those that wait."""
        while self._workers:
            _kill(self._workers.pop()[1])


def _key(setup: Setup, env: Mapping[str, str]) -> _Key:
    environment = {name: value for name, value in {**os.environ, **env}.items() if name not in _TOLD}
    limits = tuple(map(resource.getrlimit, _LIMITS))
    return setup, frozenset(environment.items()), limits, frozenset(os.sched_getaffinity(0))


_WAITING = _Waiting()


@contextmanager
def warm_processes() -> Iterator[None]:
    """Let workers wait for the next pool, and onnxslim run in the processes that need it.

    Commands start no interpreter ahead of their work: with one at hand, theirs would stay until all tests end.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreters, "start_early", lambda *needs, later=(), copies=False: None)
        patch.setattr(pool, "WorkerProcess", _WAITING.take)
        patch.setattr(WorkerProcess, "kill", lambda worker: _WAITING.leave(worker))
        patch.setattr(simplify, "SimplifyProcess", SimplifyHere)
        patch.setattr(import_job, "SimplifyProcess", SimplifyHere)
        yield


@contextmanager
def ending_processes() -> Iterator[None]:
    """End the workers that wait when the last test has ended."""
    yield
    _WAITING.close()

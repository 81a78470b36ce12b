"""Worker side: runs jobs that arrive, in processes of their own: a crash harms neither Dask nor the next job.

Measurements take turns with all else that measures or compiles on this machine, whoever asked for it.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sartor.errors import DisturbedError, SartorError
from sartor.tuning.cluster.machine import Machine
from sartor.tuning.cluster.parcel import Answer, FileStore, Packed, Parcel, run_packed, with_contents
from sartor.tuning.workers.calls import MEMORY_LIMIT
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from sartor.tuning.workers.sharing import Turns, turns_file

_RUN_PACKED = entry_point(run_packed)
_Result = TypeVar("_Result")


class _Lane:
    """A thread with a worker process of its own: the process lives as long as the thread that started it."""

    def __init__(self, folder: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sartor-lane")
        self._pool = WorkerPool(1, memory_limit=MEMORY_LIMIT, env={"TMPDIR": str(folder)}, turns=Turns(turns_file()))

    def do(self, function: Callable[[WorkerPool], _Result]) -> _Result:
        """Call a function with the pool, in the thread, and wait for it."""
        return self._thread.submit(function, self._pool).result()

    def close(self) -> None:
        """End the process and the thread."""
        self._thread.submit(self._pool.close).result()
        self._thread.shutdown()


class Service:
    """Runs the jobs of one worker.

    Args:
        machine: what the worker reports.
        folder: exists, is empty, and is removed by somebody else.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._folder = folder
        self._files = FileStore(folder / "files")
        self._files.folder.mkdir()
        self._measuring = _Lane(folder)
        self._compiling = [_Lane(folder) for _ in range(machine.compilers)]
        self._free: queue.SimpleQueue[_Lane] = queue.SimpleQueue()
        for lane in self._compiling:
            self._free.put(lane)
        self._lock = threading.Lock()
        self._active = 0

    def close(self) -> None:
        """End all processes."""
        for lane in (self._measuring, *self._compiling):
            lane.close()

    def run(self, parcel: Parcel, *, measures: bool) -> Answer:
        """Run a job and wait for it.

        Args:
            parcel: the job.
            measures: whether it is a measurement, which is alone; else it is a compilation.
        """
        with self._lock:
            if not self._active:
                self._files.make_room(parcel.arguments)
            missing = self._files.lacks(parcel.arguments)
            if missing:
                return Answer(_failed(JobStatus.FAILED, "files of the job are not here"), Packed(b""), missing)
            self._files.put(parcel.arguments)
            self._active += 1
        lane = self._measuring if measures else self._free.get()
        try:
            return lane.do(lambda pool: self._run(pool, parcel, measures))
        finally:
            if not measures:
                self._free.put(lane)
            with self._lock:
                self._active -= 1

    def _run(self, pool: WorkerPool, parcel: Parcel, measures: bool) -> Answer:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            if parcel.is_fresh:
                pool.close()
            packed = replace(parcel.arguments, contents={})
            job = {"function": parcel.function, "packed": packed, "store": self._files, "folder": folder}
            result = _only(pool, job, parcel.timeout, measures)
            if result.status is not JobStatus.OK:
                return Answer(result, Packed(b""))
            value, files = result.value
            return Answer(replace(result, value=None), with_contents(value, files))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _only(pool: WorkerPool, job: dict[str, object], timeout: float, measures: bool) -> JobResult:
    """The result of a job; a machine on which no process starts, or that has no room, has disturbed it."""
    try:
        (result,) = pool.map_unordered(_RUN_PACKED, [("job", job)], timeout, quiet=measures)
    except DisturbedError as error:
        return _failed(JobStatus.KILLED, str(error))
    except SartorError as error:
        return _failed(JobStatus.DISK_FULL, str(error))
    return result


def _failed(status: JobStatus, message: str) -> JobResult:
    return JobResult("job", status, None, message, 0.0)


_SERVICES: list[Service] = []


def begin_service(service: Service) -> None:
    """Let ``run_job`` use a service, until it is closed."""
    _SERVICES.append(service)


def end_service(service: Service) -> None:
    """The end of ``begin_service``."""
    _SERVICES.remove(service)
    service.close()


def run_job(worker: str, parcel: Parcel, measures: bool) -> Answer:
    """What Dask calls in a worker process.

    Args:
        worker: identity of the worker that is meant; several may be in one process.
        parcel: the job.
        measures: as for ``Service.run``.

    Raises:
        LookupError: if that worker is not here any more.
    """
    for service in _SERVICES:
        if service.machine.worker == worker:
            return service.run(parcel, measures=measures)
    raise LookupError(f"the worker {worker} is not here")

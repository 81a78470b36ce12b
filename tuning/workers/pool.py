"""A pool of persistent worker processes in which jobs may crash, hang or run out of memory.

Compilers may abort and generated code may crash. A job that ends its process is recorded as crashed, and the next job
gets a new process. Pipes, process groups and resource limits restrict this module to POSIX systems.
"""

from __future__ import annotations

import itertools
import logging
import math
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from sartor.errors import DisturbedError, SystemRefusedError
from sartor.tuning.workers.beside.ahead import Ahead, request_of
from sartor.tuning.workers.beside.stopping import current
from sartor.tuning.workers.channel import wait
from sartor.tuning.workers.process import JobResult, WorkerProcess, first_line
from sartor.tuning.workers.protocol import JobStatus, Logged, Request, Setup
from sartor.tuning.workers.sharing import Load, Turns, Watch, is_quiet_now

__all__ = ["Batch", "Job", "JobResult", "JobStatus", "WorkerPool"]

_LOG = logging.getLogger(__name__)

Job = tuple[str, Mapping[str, Any]]
_Requests = Iterator[tuple[str, Request]]
_Backlog = deque[tuple[str, Request]]
# Interval in which silent workers are checked for having been stopped; most measuring jobs are shorter.
_HEARTBEAT = 5.0
# If this process wakes up later than that, it was stopped itself and could not receive workers' answers.
_LATE = 1.0
# Number of restarts per worker that was lost while it started, unless a job ends in between.
_RESTARTS = 2


class Batch:
    """Measurements that are asked for one by one, begin once the rest is asked for, and run one after the other.

    Args:
        run: runs listed jobs.
    """

    is_early = False
    """Whether jobs begin when they are added, so that they run while something else goes on."""

    def __init__(self, run: Callable[[list[Job]], Iterator[JobResult]]) -> None:
        self._run = run
        self._jobs: list[Job] = []

    def add(self, name: str, arguments: Mapping[str, Any], weight: float = 1.0) -> None:
        """Ask for a job; ``weight`` says how long it takes relative to others."""
        self._jobs.append((name, arguments))

    def ready(self) -> list[JobResult]:
        """Results that have arrived and were not given yet."""
        return []

    def rest(self) -> Iterator[JobResult]:
        """Wait for all other results, until the deadline; those of jobs that were not done by then are missing."""
        jobs, self._jobs = self._jobs, []
        return self._run(jobs)


class WorkerPool:
    """A pool of at most ``count`` worker processes, started when jobs need them and kept until the pool is closed.

    It is a context manager, to be used from one thread: the kernel kills the workers when the thread that started
    them ends. Leaving the block kills all workers at once.

    Args:
        count: number of processes.
        initializer: ``package.module:function``, called without arguments once in each process before its
            first job, usually to import what the jobs need.
        memory_limit: bytes that a job may allocate, beyond what the process holds when it has started; None
            for no limit. A thread counts as about 8 MiB, files mapped for reading do not count (``program``).
        env: environment variables in addition to the parent's.
        start_timeout: seconds that starting a process may take, including the initializer.
        turns: taken with other compilations while jobs run; the pool then also notices how much other programs compute
            during measurements. None for a pool whose jobs are short.
    """

    measures_elsewhere = False
    """Whether measurements are made on other machines."""

    def __init__(
        self,
        count: int,
        *,
        initializer: str | None = None,
        memory_limit: int | None = None,
        env: Mapping[str, str] | None = None,
        start_timeout: float = 120.0,
        turns: Turns | None = None,
    ) -> None:
        if count < 1:
            raise ValueError(f"a pool needs at least one worker, not {count}")
        self._count = count
        self._setup = Setup(tuple(sys.path), initializer, memory_limit)
        self._env = dict(env or {})
        self._start_timeout = start_timeout
        self._workers: list[WorkerProcess] = []
        self._assigned: dict[str, Request] = {}
        self._lost_starts = 0
        self._mapping = False
        self._turns = turns
        self.others = 0.0
        """How many processors other programs took while something was measured, if that left too few; else 0."""
        self._others_lately = 0.0
        self._logged: set[Logged] = set()
        self._ahead: list[Ahead[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at_once(self, function: str) -> int:
        """Number of jobs of a function that are done at a time, if they may be done beside others."""
        return self._count

    def beside(self) -> WorkerPool:
        """A pool of one worker with the same settings, for a job that must not affect the workers of this pool."""
        setup = self._setup
        return WorkerPool(
            1,
            initializer=setup.initializer,
            memory_limit=setup.memory_limit,
            env=self._env,
            start_timeout=self._start_timeout,
            turns=self._turns,
        )

    def ahead(self, function: str, arguments: Mapping[str, Any], step: str, timeout: float) -> Ahead[Any] | None:
        """Begin a call in a process of its own, beside what this pool does; None if that would disturb a measurement.

        Measurements of this pool wait for its end, and closing the pool ends it.

        Args:
            function: as for ``map_unordered``.
            arguments: keyword arguments.
            step: description of the call.
            timeout: seconds that it may take.
        """
        ending = None if self.measures_elsewhere else self._place_beside()
        if ending is None:
            return None
        worker = WorkerProcess(self._setup, self._env, self._start_timeout)
        begun: Ahead[Any] = Ahead(worker, request_of(function, arguments), step, timeout, ending, self._relay)
        self._ahead.append(begun)
        return begun

    def _place_beside(self) -> Callable[[], None] | None:
        return (lambda: None) if self._turns is None else self._turns.place_beside()

    def take_others(self) -> float:
        """As ``others``, of what was measured since this was last asked."""
        lately, self._others_lately = self._others_lately, 0.0
        return lately

    def close(self) -> None:
        """Kill all workers. Later jobs start new ones."""
        self._discard(self._workers)
        while self._ahead:
            self._ahead.pop().cancel()

    def is_quiet(self) -> bool:
        """Whether other programs leave enough processors where this pool measures, in the second that this takes."""
        return is_quiet_now()

    @contextmanager
    def batch(self, function: str, timeout: float, deadline: float | None = None) -> Iterator[Batch]:
        """Measure several things; see ``map_unordered``, which does it here once all are known."""
        yield Batch(lambda jobs: self.map_unordered(function, jobs, timeout, quiet=True, deadline=deadline))

    def compare_machines(
        self,
        function: str,
        jobs: Sequence[Job],
        timeout: float,
        seconds: Callable[[Any], float | None],
    ) -> None:
        """Let each machine measure the same, to compare it with the first one, if several measure.

        Args:
            function: as for ``map_unordered``.
            jobs: ids with keyword arguments.
            timeout: seconds that one job may take.
            seconds: the time in a result; None if it has none.
        """

    def map_unordered(
        self,
        function: str,
        jobs: Iterable[Job],
        timeout: float,
        *,
        quiet: bool = False,
        affinity: Collection[int] | None = None,
        deadline: float | None = None,
    ) -> Iterator[JobResult]:
        """Call ``function`` (``package.module:name``) once per job and yield results in the order in which jobs end.

        Jobs are pairs of an id and keyword arguments, taken from ``jobs`` as workers become free. Arguments
        and results are pickled. Closing the iterator early, or an exception during the iteration (Ctrl-C), kills
        running jobs.

        A disturbed job (``JobStatus.is_transient``) runs once more, alone, after the others have ended.

        Args:
            function: the function to call.
            jobs: ids, which must be distinct, with keyword arguments.
            timeout: seconds that one job may take, without the start of its process.
            quiet: for measuring. One job runs at a time, in the same process as the previous one if that is alive.
                Meanwhile other workers are idle, and so is the caller, since the next job starts when the caller asks
                for the next result.
            affinity: processors to which all threads of the jobs' processes are bound; Linux only.
            deadline: by ``time.monotonic()``; after it no job is started, and running jobs are killed without a
                result.

        Raises:
            SystemRefusedError: a worker process could not start, or the disk was full for a job twice.
            DisturbedError: worker processes were repeatedly killed, stopped or starved while they started.
            RuntimeError: another ``map_unordered`` of this pool has not ended.
        """
        if self._mapping:
            raise RuntimeError("the pool is already running jobs")
        self._mapping = True
        self._lost_starts = 0
        processors = None if affinity is None else frozenset(affinity)
        requests = ((job_id, Request(function, arguments, processors)) for job_id, arguments in jobs)
        finished = False
        try:
            end = math.inf if deadline is None else deadline
            with self._turn(quiet, end):
                yield from self._run(requests, timeout, quiet, end)
            finished = True
        finally:
            if not finished:
                self._discard([worker for worker in self._workers if not worker.idle])
            self._assigned.clear()
            self._mapping = False

    @contextmanager
    def _turn(self, quiet: bool, deadline: float) -> Iterator[None]:
        """Share the machine with other compilations, or have it alone and watch who else computes."""
        while quiet and self._ahead:
            self._ahead.pop().result()
        if self._turns is None:
            yield
            return
        with self._turns.turn(alone=quiet, deadline=deadline):
            before = Load.now(self._groups) if quiet else None
            yield
            after = None if before is None else Load.now(self._groups)
        if before is not None and after is not None:
            self._note(after.others_since(before), after.processors)

    @property
    def _groups(self) -> list[int]:
        return [worker.group for worker in self._workers]

    def _note(self, others: float, processors: int) -> None:
        if others and not self.others:
            _LOG.warning(
                "other programs took %.1f of %d processors while something was measured: times are less exact, and "
                "what was chosen by them may be wrong; run the command again when the machine is quiet",
                others,
                processors,
            )
        self.others = max(self.others, others)
        self._others_lately = max(self._others_lately, others)

    def _run(self, requests: _Requests, timeout: float, quiet: bool, deadline: float) -> Iterator[JobResult]:
        disturbed: list[tuple[str, Request]] = []
        watch = Watch(quiet and self._turns is not None)
        watch.others(self._groups)
        for result, request in self._run_once(requests, timeout, quiet, deadline):
            result = replace(result, others=watch.others(self._groups))
            if result.status.is_transient:
                result.tell_disturbance()
                disturbed.append((result.job_id, request))
            else:
                yield result
        for job in disturbed:
            for result, _ in self._run_once(iter([job]), timeout, True, deadline):
                if result.status is JobStatus.DISK_FULL:
                    raise SystemRefusedError(f"no room on the disk: {result.reason}; {self._where_room_is_needed()}")
                yield result

    def _where_room_is_needed(self) -> str:
        folder = self._env.get("TMPDIR", tempfile.gettempdir())
        return f"make some where '{folder}' is, or set TMPDIR to a folder elsewhere"

    def _run_once(
        self, requests: _Requests, timeout: float, quiet: bool, deadline: float
    ) -> Iterator[tuple[JobResult, Request]]:
        """Yield results with their requests; disturbed jobs are not repeated."""
        backlog: _Backlog = deque()
        while True:
            if time.monotonic() >= deadline:
                self._discard([worker for worker in self._workers if worker.busy])
                return
            self._dispatch(requests, backlog, timeout, quiet)
            if not backlog and not any(worker.busy for worker in self._workers):
                return
            results = _collect([worker for worker in self._workers if not worker.idle], deadline)
            if not quiet and time.monotonic() < deadline:
                self._dispatch(requests, backlog, timeout, quiet)
            for result in results:
                self._lost_starts = 0
                self._relay(result.logged)
                yield result, self._assigned.pop(result.job_id)

    def _relay(self, logged: Iterable[Logged]) -> None:
        """Log what a job logged, in the parent; each text once, as many jobs meet with the same."""
        for record in logged:
            if record not in self._logged:
                self._logged.add(record)
                logging.getLogger(record.logger).log(record.level, "%s", record.text)

    def _dispatch(self, requests: _Requests, backlog: _Backlog, timeout: float, quiet: bool) -> None:
        """Give jobs to idle workers, and start more workers if the backlog needs them."""
        self._discard([worker for worker in self._workers if worker.idle and self._spent(worker)])
        self._discard_lost()
        limit = 1 if quiet else self._count
        backlog.extend(itertools.islice(requests, limit - len(backlog)))
        idle = [worker for worker in self._workers if worker.idle]
        if quiet and len(idle) < len(self._workers):
            return
        for worker in idle[: len(backlog)]:
            job_id, request = backlog.popleft()
            self._assigned[job_id] = request
            worker.assign(job_id, request, timeout)
        starting = sum(worker.starting for worker in self._workers)
        for _ in range(min(limit - len(self._workers), len(backlog) - starting)):
            self._workers.append(WorkerProcess(self._setup, self._env, self._start_timeout))

    def _discard_lost(self) -> None:
        """Remove workers that were disturbed while they started, so that others are started.

        Raises:
            DisturbedError: if that happened too often.
        """
        lost = [worker for worker in self._workers if worker.lost]
        self._discard(lost)
        self._lost_starts += len(lost)
        for worker in lost:
            if self._lost_starts > _RESTARTS * self._count:
                raise DisturbedError(f"a worker process could not start: {worker.lost}; try again")
            reason = first_line(worker.lost)
            _LOG.warning("a worker was disturbed while it started (%s), another one is started", reason)

    def _spent(self, worker: WorkerProcess) -> bool:
        """Whether the next job needs a new process: this one died, lost a device, or leaked half the memory limit."""
        limit = self._setup.memory_limit
        return not worker.alive or worker.is_spent or (limit is not None and worker.growth > limit // 2)

    def _discard(self, workers: list[WorkerProcess]) -> None:
        for worker in workers:
            worker.kill()
        self._workers = [worker for worker in self._workers if worker not in workers]


def _collect(active: list[WorkerProcess], deadline: float) -> list[JobResult]:
    """Wait until a worker answers, dies or takes too long, or until the deadline; returns jobs that have ended."""
    begin = time.monotonic()
    patience = max(0.0, min(deadline - begin, _HEARTBEAT, *(worker.seconds_left for worker in active)))
    with current().waiting():
        speaking = wait([worker.channel for worker in active], patience)
    late = time.monotonic() - begin - patience
    results = []
    for worker in active:
        if late > _LATE:
            worker.postpone(late)
        result = worker.receive() if worker.channel in speaking else None
        if result is None and not worker.idle:
            result = worker.overdue()
        results.append(result)
    return [result for result in results if result is not None]

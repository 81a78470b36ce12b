"""The parent's end of one worker process: start it, give it a job, hear from it, kill it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import IO, Any

from sartor.errors import SartorError
from sartor.tuning.worker_protocol import JOB_BEGINS, OUT_OF_MEMORY_SIGN, JobStatus, Reply, Request, Setup

_TAIL_BYTES = 8000
_DEATH_SECONDS = 5.0


@dataclass(frozen=True)
class JobResult:
    """How one job ended.

    Attributes:
        job_id: as given with the job.
        status: FAILED if the function raised, CRASHED if it took its process with it, or what its name says.
        value: what the function returned, None unless OK.
        message: one line on what went wrong, empty if OK; if the process died, the last it printed follows.
        seconds: how long the function ran.
    """

    job_id: str
    status: JobStatus
    value: Any
    message: str
    seconds: float


class WorkerProcess:
    """One worker: starting, then idle or busy with one job. Its process group dies with it."""

    def __init__(self, setup: Setup, env: Mapping[str, str], start_timeout: float) -> None:
        self.connection, remote = Pipe()
        with remote:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "sartor.tuning.worker", str(remote.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                pass_fds=(remote.fileno(),),
                process_group=0,
            )
        self._output = _Tail(self._process.stdout)
        self._job_id: str | None = None
        self._started = False
        self._begin = time.monotonic()
        self._timeout = start_timeout
        self.growth = 0
        with suppress(BrokenPipeError):
            self.connection.send(setup)

    @property
    def starting(self) -> bool:
        """Whether it has not yet answered its setup."""
        return not self._started

    @property
    def busy(self) -> bool:
        """Whether it has a job."""
        return self._job_id is not None

    @property
    def idle(self) -> bool:
        """Whether it waits for a job."""
        return not self.starting and not self.busy

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def seconds_left(self) -> float:
        """Seconds until what it does has taken too long."""
        return self._begin + self._timeout - time.monotonic()

    def assign(self, job_id: str, request: Request, timeout: float) -> None:
        """Give the idle worker a job that may take ``timeout`` seconds."""
        self._job_id = job_id
        self._timeout = timeout
        self._begin = time.monotonic()
        # A worker that dies now is found out when its answer is read, and the job is to blame.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(request)

    def receive(self) -> JobResult | None:
        """Read what the worker has to say; None if it has started. A worker that died is no longer ``alive``.

        Raises:
            SartorError: the worker could not start.
        """
        try:
            payload = self.connection.recv_bytes()
            reply: Reply = self.connection.recv()
        except (EOFError, OSError):
            return self._ended(*self._cause_of_death())
        if not self._started and reply.status is JobStatus.OK:
            self._started = True
            return None
        self.growth = reply.growth
        value = pickle.loads(payload) if reply.status is JobStatus.OK else None
        return self._ended(reply.status, reply.message, reply.seconds, value)

    def expire(self) -> JobResult:
        """Kill the worker because its time is over.

        Raises:
            SartorError: it was still starting.
        """
        self.kill()
        message = f"still running after {self._timeout:g} s, killed{self._printed()}"
        return self._ended(JobStatus.TIMEOUT, message, time.monotonic() - self._begin)

    def kill(self) -> None:
        """End the worker and every process it started, at once; a second time does nothing."""
        if self.connection.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()
        self._output.finish()

    def _ended(self, status: JobStatus, message: str, seconds: float, value: Any = None) -> JobResult:
        job_id, self._job_id = self._job_id, None
        if job_id is None:
            raise SartorError(f"a worker process could not start: {message}")
        return JobResult(job_id, status, value, message, seconds)

    def _cause_of_death(self) -> tuple[JobStatus, str, float]:
        seconds = time.monotonic() - self._begin
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        self.kill()
        printed = self._printed()
        code = self._process.returncode
        # The pool's own kills do not come by here: a SIGKILL is the kernel's, for memory.
        if code == -signal.SIGKILL or OUT_OF_MEMORY_SIGN.search(printed):
            return JobStatus.OUT_OF_MEMORY, f"the process ran out of memory{printed}", seconds
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return JobStatus.CRASHED, f"the process {how}{printed}", seconds

    def _printed(self) -> str:
        text = self._output.text().strip()
        return f"; its last output:\n{text}" if text else ""


class _Tail:
    """The end of what a worker prints in its last job, read by a thread so that a full pipe never stops the worker."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            raise ValueError("the worker's output is not a pipe")
        self._stream = stream
        self._bytes = b""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="worker-output", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Read what is left once the worker is dead."""
        self._thread.join(_DEATH_SECONDS)

    def text(self) -> str:
        """The last few thousand bytes printed."""
        with self._lock:
            return self._bytes.decode("utf-8", errors="replace")

    def _drain(self) -> None:
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                with self._lock:
                    self._bytes = (self._bytes + chunk).rpartition(JOB_BEGINS)[2][-_TAIL_BYTES:]

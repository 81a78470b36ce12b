"""The parent's side of one worker process: starts it, sends jobs, receives answers, kills it."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any

from sartor.errors import CompileError, DisturbedError, SystemRefusedError
from sartor.tuning.workers.channel import Channel, OversizedFrameError
from sartor.tuning.workers.disturbances import DISK_FULL_SIGN, Usage, is_memory_promised, is_stopped, oom_kills
from sartor.tuning.workers.hangs.stacks import ask_for_stacks, threads_of
from sartor.tuning.workers.protocol import JOB_BEGINS, OUT_OF_MEMORY_SIGN, JobStatus, Logged, Reply, Request, Setup
from sartor.tuning.workers.starting.interpreters import taken

_LOG = logging.getLogger(__name__)
_TAIL_BYTES = 8000
_ASIDE_BYTES = 1 << 20
_LAST_OUTPUT = "; its last output:"
# A reply is two frames: the function's result, and a ``Reply``.
_REPLY_FRAMES = 2
_DEATH_SECONDS = 5.0
# How long a worker may take to print its stacks, and the pause after which it has printed them.
_STACK_SECONDS = 2.0
_STACK_PAUSE = 0.1
# What Python adds on a signal that ends it: stacks of this package, which say nothing to the user.
_DUMP = re.compile(r"^Fatal Python error: .*", re.MULTILINE | re.DOTALL)
# A worker that is stopped for longer is killed.
_STOPPED_SECONDS = 5.0
_OWN_SIGNALS = {
    getattr(signal, name)
    for name in ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGSEGV", "SIGSYS", "SIGTRAP", "SIGXCPU")
}


@dataclass(frozen=True)
class JobResult:
    """The result of one job.

    Attributes:
        job_id: as given with the job.
        status: FAILED if the function raised, CRASHED if its process ended, otherwise as its name says. If it
            ``is_transient``, the job was disturbed and may be tried again.
        value: the function's result, None unless OK.
        message: one line about the failure, empty if OK; if the process died, its last output follows.
        seconds: run time of the function.
        others: how many processors other programs took meanwhile, if the job measured and that left too few; else 0.
        logged: warnings and errors that the job logged, unless its process died.
        slowness: how many times as long as the machine that measured first the one takes that ran the job; 1 if there
            is only one.
        stacks: what the job's threads did when its time was up, if it hung; else empty.
    """

    job_id: str
    status: JobStatus
    value: Any
    message: str
    seconds: float
    others: float = 0.0
    logged: tuple[Logged, ...] = ()
    slowness: float = 1.0
    stacks: str = ""

    @property
    def reason(self) -> str:
        """The failure in one line, without what the process printed."""
        return f"{self.status.value}: {first_line(self.message)}"

    def tell_disturbance(self) -> None:
        """Warn that the job was disturbed, and that whoever began it will try again."""
        _LOG.warning("a worker was disturbed (%s), what it did is tried again", self.reason)

    def error(self, step: str) -> CompileError:
        """The exception for a failed job that the user's command cannot do without; ``step`` describes the job.

        It is a ``DisturbedError`` if the job was disturbed.
        """
        if self.status.is_transient:
            return DisturbedError(f"{step} was disturbed ({self.status.value}): {self.message}; try again")
        return CompileError(f"{step} ended as {self.status.value}: {self.message}")


class WorkerProcess:
    """One worker process: starting, then idle, or busy with one job. ``kill`` ends its whole process group."""

    def __init__(self, setup: Setup, env: Mapping[str, str], start_timeout: float) -> None:
        interpreter = taken(env)
        self.channel = Channel(interpreter.connection)
        self._process = interpreter.process
        self._output = _Tail(self._process.stdout)
        self._frames: list[bytearray] = []
        self._limit = setup.memory_limit
        self._job_id: str | None = None
        self._started = False
        self._stopped_since: float | None = None
        self._owner = os.getpid()
        self.lost = ""
        """The disturbance that ended the process while it started; empty if there was none."""
        self.growth = 0
        self.is_spent = False
        self._begin_anew(start_timeout)
        self.channel.send(replace(setup, environment=tuple(env.items())))

    def _begin_anew(self, timeout: float) -> None:
        self._timeout = timeout
        self._begin = time.monotonic()
        self._oom_kills = oom_kills()
        self._usage = Usage.of_process(self._process.pid)

    @property
    def starting(self) -> bool:
        """Whether it has not yet answered the setup message."""
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
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists and is not stopped."""
        return self._process.poll() is None and not is_stopped(self._process.pid)

    @property
    def seconds_left(self) -> float:
        """Seconds until its job, or its start, times out."""
        return self._begin + self._timeout - time.monotonic()

    def postpone(self, seconds: float) -> None:
        """Extend the time limit by the time in which the parent could not receive answers."""
        self._begin += seconds

    def assign(self, job_id: str, request: Request, timeout: float) -> None:
        """Send a job to an idle worker, or one that starts; it may take ``timeout`` seconds."""
        self._job_id = job_id
        self._begin_anew(timeout)
        self.channel.send(request)

    def receive(self) -> JobResult | None:
        """Read from the worker; returns its job's result, None if the answer is incomplete or was to the setup.

        If the worker died, it is no longer ``alive``; if it died by a disturbance while it started, ``lost`` is set.

        Raises:
            SystemRefusedError: the worker could not start, without a disturbance.
        """
        try:
            self._frames += self.channel.read()
        except OversizedFrameError as error:
            self.kill()
            return self._ended(JobStatus.CRASHED, f"the process announced a message of {error}", self._seconds)
        except (EOFError, OSError):
            return self._ended(*self._cause_of_death())
        # A job that was sent while the worker started may be answered together with the setup.
        while len(self._frames) >= _REPLY_FRAMES:
            payload, described = self._frames[:_REPLY_FRAMES]
            del self._frames[:_REPLY_FRAMES]
            if result := self._answered(payload, pickle.loads(described)):
                return result
        return None

    def _answered(self, payload: bytearray, reply: Reply) -> JobResult | None:
        if not self._started and reply.status is JobStatus.OK:
            self._started = True
            return None
        self.growth = reply.growth
        self.is_spent = reply.is_spent
        value = pickle.loads(payload) if reply.status is JobStatus.OK else None
        result = self._ended(self._memory_status(reply.status), reply.message, reply.seconds, value)
        return result and replace(result, logged=reply.logged)

    def _memory_status(self, status: JobStatus) -> JobStatus:
        """Distinguish memory refused by the job's limit from memory that the system has committed to others."""
        short = status is JobStatus.OUT_OF_MEMORY and is_memory_promised(self._limit)
        return JobStatus.MEMORY_SHORT if short else status

    def overdue(self) -> JobResult | None:
        """Kill the worker if its time is up or it was stopped; returns its job's result, or None if it may continue.

        Raises:
            SystemRefusedError: it took too long to start, without a disturbance.
        """
        if self.lost:
            return None
        if self.seconds_left <= 0:
            status = self._timeout_status()
            stacks = self._stacks() if status is JobStatus.TIMEOUT else ""
            self.kill()
            message = f"still running after {self._timeout:g} s, killed{self._printed()}"
            result = self._ended(status, message, self._seconds)
            return result and replace(result, stacks=stacks)
        if not is_stopped(self._process.pid):
            self._stopped_since = None
            return None
        self._stopped_since = self._stopped_since or time.monotonic()
        if time.monotonic() - self._stopped_since < _STOPPED_SECONDS:
            return None
        self.kill()
        return self._ended(JobStatus.KILLED, "the process was stopped from outside", self._seconds)

    def _timeout_status(self) -> JobStatus:
        if is_stopped(self._process.pid):
            return JobStatus.KILLED
        before, now = self._usage, Usage.of_group(self._process.pid)
        starved = before is not None and now is not None and now.was_starved(before)
        return JobStatus.STARVED if starved else JobStatus.TIMEOUT

    def _stacks(self) -> str:
        """What all threads of the worker do, as the kernel and as Python see it."""
        threads = threads_of(self._process.pid)
        self._output.begin_aside()
        ask_for_stacks(self._process.pid)
        return f"{threads}\n\n{self._output.aside()}"

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def signal_end(self) -> None:
        """Kill the worker's processes without waiting for their end, which whoever reads its answers meets with."""
        if os.getpid() != self._owner:
            return
        with suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker and all processes that it started; does nothing if it is already killed."""
        if self.channel.closed:
            return
        if os.getpid() != self._owner:
            # In a forked process, at whose end exit handlers run: the worker answers the parent.
            self.channel.close()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.channel.close()
        self._output.finish()

    def _ended(self, status: JobStatus, message: str, seconds: float, value: Any = None) -> JobResult | None:
        job_id, self._job_id = self._job_id, None
        if job_id is not None:
            return JobResult(job_id, status, value, message, seconds)
        if not status.is_transient:
            raise SystemRefusedError(f"a worker process could not start: {message}")
        self.lost = f"{status.value}: {message}"
        return None

    def _cause_of_death(self) -> tuple[JobStatus, str, float]:
        seconds = self._seconds
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        code = self._process.returncode
        self.kill()
        printed = self._printed()
        if code is None:
            return JobStatus.CRASHED, f"the process hung up, but did not end{printed}", seconds
        # Kills by the pool do not reach this line, and the memory limit does not kill: it makes allocations fail.
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            return JobStatus.MEMORY_SHORT, f"the kernel killed the process for want of memory{printed}", seconds
        if code < 0 and -code not in _OWN_SIGNALS:
            return JobStatus.KILLED, f"the process was killed from outside by {_name(-code)}{printed}", seconds
        how = f"was killed by {_name(-code)}" if code < 0 else f"exited with status {code}"
        if DISK_FULL_SIGN.search(printed):
            return JobStatus.DISK_FULL, f"the process {how}{printed}", seconds
        if OUT_OF_MEMORY_SIGN.search(printed):
            status = self._memory_status(JobStatus.OUT_OF_MEMORY)
            return status, f"the process ran out of memory{printed}", seconds
        return JobStatus.CRASHED, f"the process {how}{printed}", seconds

    def _printed(self) -> str:
        text = _DUMP.sub("", self._output.text()).strip()
        return f"{_LAST_OUTPUT}\n{text}" if text else ""


def first_line(message: str) -> str:
    """A message without what a process printed, and without the words that announce it."""
    return message.partition("\n")[0].removesuffix(_LAST_OUTPUT)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Tail:
    """Keeps the end of the output of a worker's last job. A thread reads it, so a full pipe never blocks the worker."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            raise ValueError("the worker's output is not a pipe")
        self._stream = stream
        self._bytes = b""
        self._aside: bytes | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="worker-output", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Read the rest of the output after the worker has ended."""
        self._thread.join(_DEATH_SECONDS)

    def text(self) -> str:
        """The last bytes of the output."""
        with self._lock:
            return self._bytes.decode("utf-8", errors="replace")

    def begin_aside(self) -> None:
        """Keep what is printed from now on apart."""
        with self._lock:
            self._aside = b""

    def aside(self) -> str:
        """What was printed since ``begin_aside``, once something was and a pause has followed, or it takes too long."""
        deadline = time.monotonic() + _STACK_SECONDS
        before = b""
        while time.monotonic() < deadline:
            time.sleep(_STACK_PAUSE)
            with self._lock:
                now = self._aside or b""
            if now and now == before:
                break
            before = now
        return before.decode("utf-8", errors="replace")

    def _drain(self) -> None:
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                with self._lock:
                    if self._aside is not None:
                        self._aside = (self._aside + chunk)[:_ASIDE_BYTES]
                        continue
                    self._bytes = (self._bytes + chunk).rpartition(JOB_BEGINS)[2][-_TAIL_BYTES:]

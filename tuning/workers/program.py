"""The program of a worker process, ``python -m sartor.tuning.workers.program FD [NEED...] [-- NEED...]``: runs jobs
while the parent lives.

While it waits it gets what jobs will need, up to ``--`` before the first job and the rest after that: modules to
import, or functions to call, as ``package.module:name``.

Memory is limited by ``RLIMIT_DATA``: the kernel enforces it at each allocation, independent of the parent, and counts
private writable memory only. ``RLIMIT_AS`` would also count weights mapped from files and address space that
allocators and drivers only reserve. A parent that polls RSS would notice a sudden increase too late. Thread stacks
count in full, about 8 MiB each. Outside Linux the limit may have no effect.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType

from sartor.errors import DeviceError, SartorError
from sartor.tuning.workers.channel import receive_frame, send_frame
from sartor.tuning.workers.disturbances import is_disk_full
from sartor.tuning.workers.entry_points import resolved
from sartor.tuning.workers.hangs.stacks import answer_requests
from sartor.tuning.workers.protocol import (
    JOB_BEGINS,
    OUT_OF_MEMORY_SIGN,
    JobStatus,
    Logged,
    Reply,
    Request,
    Setup,
    WorkerError,
)
from sartor.workspace import nothing_collected

_LATER = "--"
_PR_SET_PDEATHSIG = 1
_OUTPUT = 1
_PACKAGE = "sartor"
_MOST_RECORDS = 20
_LONGEST_RECORD = 1000
_OOM_SCORE = "500"
"""If the machine runs out of memory, the kernel kills a worker rather than its parent."""


class _Caught(AbstractContextManager["_Caught"]):
    """Turns exceptions of a job into a status, as they must not end the worker."""

    status = JobStatus.OK
    message = ""
    is_spent = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.message = _one_line(error)
        self.is_spent = isinstance(error, DeviceError)
        # Checked first, because IREE reports a full disk as an exhausted resource too.
        if is_disk_full(error):
            self.status = JobStatus.DISK_FULL
        elif isinstance(error, MemoryError) or OUT_OF_MEMORY_SIGN.search(self.message):
            self.status = JobStatus.OUT_OF_MEMORY
        else:
            self.status = JobStatus.FAILED
        return True


class _JobLog(logging.Handler):
    """Collects this package's warnings and errors of the current job, which the parent logs where the user sees them.

    Warnings of other libraries are about calls that the user did not make. A job that logs without end must not fill
    memory: what exceeds the limits is counted and cut.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: dict[Logged, None] = {}
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # A job that crashes does not answer, but what it printed is kept.
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
        logged = Logged(record.name, record.levelno, text[:_LONGEST_RECORD])
        if logged in self._records or len(self._records) < _MOST_RECORDS:
            self._records[logged] = None
        else:
            self._left_out += 1

    def take(self) -> tuple[Logged, ...]:
        """What was logged since this was last asked, each text once."""
        taken, left_out = [*self._records], self._left_out
        self._records, self._left_out = {}, 0
        if left_out:
            taken.append(Logged(__name__, logging.WARNING, f"{left_out} more warnings of the same job are left out"))
        return tuple(taken)


class _Server:
    """Serves one connection, and keeps the size of the process's memory before its first job."""

    def __init__(self, connection: socket.socket, needs: Sequence[str]) -> None:
        """Serve a connection; ``needs`` are as the program is given them."""
        self._connection = connection
        self._needs = deque(needs)
        self._log = _JobLog()
        self._held = 0
        self._inherited_affinity = self._affinity = _affinity()

    def start(self, setup: Setup) -> bool:
        """Set up the process and reply; returns whether that succeeded."""
        sys.path[:] = setup.path
        os.environ.update(setup.environment)
        logging.getLogger(_PACKAGE).addHandler(self._log)
        caught = _Caught()
        with caught:
            if setup.initializer is not None:
                resolved(setup.initializer)()
            self._held = _data_bytes()
            if setup.memory_limit is not None:
                _, most = resource.getrlimit(resource.RLIMIT_DATA)
                wanted = self._held + setup.memory_limit
                # Who may not raise a limit keeps the one that the system set.
                wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
                resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))
        self._reply(b"", caught, 0.0)
        return caught.status is JobStatus.OK

    def received(self) -> bytearray:
        """The next message. Until it arrives, or what is needed after the first job is reached, the process gets ready.

        Raises:
            EOFError: if the pool is gone.
        """
        while self._needs and self._needs[0] != _LATER and not select.select([self._connection], [], [], 0)[0]:
            _get(self._needs.popleft())
        return receive_frame(self._connection)

    def answer(self, message: bytearray) -> None:
        """Run the job in ``message`` and send its result."""
        result = b""
        caught = _Caught()
        begin = end = time.perf_counter()
        with suppress(OSError):
            os.write(_OUTPUT, JOB_BEGINS)
        with caught:
            with nothing_collected():
                request: Request = pickle.loads(message)
                function = resolved(request.function)
            self._pin(request.affinity)
            begin = time.perf_counter()
            try:
                value = function(**request.arguments)
            finally:
                end = time.perf_counter()
            # An error that a job returns may be of a lost device as well as one that it raises.
            caught.is_spent = isinstance(value, WorkerError) and isinstance(value.error, DeviceError)
            result = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            del value
        self._reply(result, caught, end - begin)
        if _LATER in self._needs:
            while self._needs.popleft() != _LATER:
                pass

    def _reply(self, result: bytes, caught: _Caught, seconds: float) -> None:
        send_frame(self._connection, result)
        growth = _data_bytes() - self._held - len(result)
        reply = Reply(caught.status, caught.message, seconds, growth, caught.is_spent, self._log.take())
        send_frame(self._connection, pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))

    def _pin(self, processors: frozenset[int] | None) -> None:
        """Bind all threads, those of libraries included, to ``processors``."""
        wanted = self._inherited_affinity if processors is None else processors
        if wanted == self._affinity:
            return
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), wanted)
        self._affinity = wanted


def main() -> None:
    """Run jobs from the connection whose file descriptor is the first argument."""
    descriptor, *needs = sys.argv[1:]
    serve(socket.socket(fileno=int(descriptor)), needs)


def serve(connection: socket.socket, needs: Sequence[str]) -> None:
    """Run jobs from a connection until its other end is gone; ``needs`` are as the program is given them."""
    _detach()
    connection.set_inheritable(False)
    server = _Server(connection, needs)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serving = server.start(pickle.loads(server.received()))
        while serving:
            server.answer(server.received())


def _get(need: str) -> None:
    """Import a module, or call a function; whether that fails is seen in the job that needs it."""
    with nothing_collected(), _Caught():
        if ":" in need:
            resolved(need)()
        else:
            import_module(need)


def _detach() -> None:
    """Ignore interrupts, which the parent handles, and die with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where whoever started the parent ignores the ends of processes, IREE does not hear that its linker succeeded.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.enable(all_threads=False)
    answer_requests()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")


def _affinity() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def _data_bytes() -> int:
    """Bytes of memory that ``RLIMIT_DATA`` counts; 0 if the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, SartorError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    main()

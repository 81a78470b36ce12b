"""A Dask scheduler and workers as processes, which tests kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.tuning.cluster import worker_program

_MOST_SECONDS = 60.0
# What a worker lacks that has the runtime half only.
_WITHOUT = ("iree.compiler", "networkx", "onnx", "onnxruntime", "onnxslim", "highspy", "xgboost")


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: if that takes too long.
    """
    end = time.monotonic() + _MOST_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.05)


@dataclass
class Processes:
    """Processes of a cluster.

    Attributes:
        folder: for their files.
        port: of the scheduler, on this machine.
        started: all processes so far.
    """

    folder: Path
    port: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The scheduler's."""
        return f"tcp://127.0.0.1:{self.port}"

    def scheduler(self) -> subprocess.Popen[bytes]:
        """Start a scheduler, which may be another one at the same port."""
        program = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(self.port)]
        started = self._start([*program, "--no-dashboard", "--no-show"])
        wait_until(self._listens)
        return started

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def worker(self, name: str, **changes: object) -> subprocess.Popen[bytes]:
        """Start a worker with the runtime half only, on a host of its own: it takes turns with no other."""
        home = self.folder / name
        home.mkdir()
        blocked = "\n".join(f"sys.modules[{each!r}] = None" for each in _WITHOUT)
        (home / "sitecustomize.py").write_text(f"import sys\n{blocked}\n")
        path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")]), os.getcwd()])
        environment = {**os.environ, "XDG_CACHE_HOME": str(home), "PYTHONPATH": path}
        told = json.dumps({"host": name, "name": name, "gpus": [], **changes})
        return self._start([sys.executable, "-P", "-m", worker_program.__name__, self.address, told], environment)

    def _start(self, command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with (self.folder / f"output-{len(self.started)}").open("wb") as output:
            started = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        self.started.append(started)
        return started

    def kill_all(self) -> None:
        """End all processes and those that they started."""
        for each in self.started:
            kill(each)


def kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` a process and those that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """A scheduler; all that is started is killed at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Processes(folder, port)
    try:
        made.scheduler()
        yield made
    finally:
        made.kill_all()

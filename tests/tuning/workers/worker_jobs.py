"""Jobs for the worker pool's tests: good, bad and ugly ones. Workers import this module by name."""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sartor.errors import CompileError

_starts: list[int] = []
_leaks: list[npt.NDArray[np.uint8]] = []
_threads: list[int] = []


def initialize() -> None:
    _starts.append(os.getpid())


def surroundings(module: str) -> tuple[int, str, bool]:
    """This process, its folder for temporary files, and whether a module is imported."""
    return os.getpid(), tempfile.gettempdir(), module in sys.modules


def refuse_to_start() -> None:
    raise RuntimeError("no compiler here")


def crash_at_start() -> None:
    os.abort()


def hang_in_a_library() -> None:
    """Keep the interpreter's lock, with stderr closed."""
    print("before", flush=True)
    os.close(2)
    ctypes.PyDLL(None).sleep(60)


def hang_at_start() -> None:
    time.sleep(60)


def be_disturbed_at_start() -> None:
    """Unless that has been done as often as wanted: the starts are counted in a file."""
    starts = Path(os.environ["STARTS"])
    with starts.open("a", encoding="ascii") as file:
        file.write("x")
    if len(starts.read_text(encoding="ascii")) <= int(os.environ["TIMES"]):
        globals()[os.environ["HOW"]]()


def start_slowly_unless_first() -> None:
    first = Path(os.environ["FIRST"])
    try:
        first.touch(exist_ok=False)
    except FileExistsError:
        time.sleep(0.7)
        Path(f"{first}.second-started-at").write_text(str(time.monotonic()), encoding="ascii")


def starts() -> list[int]:
    return _starts


def add(left: int, right: int) -> int:
    return left + right


def process(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


def period(seconds: float) -> tuple[int, float, float]:
    begin = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), begin, time.monotonic()


def open_files() -> list[str]:
    return os.listdir("/proc/self/fd")


def run_by_shell() -> int:
    return os.system("true")


def crash(saying: str = "") -> None:
    print(saying)
    os.abort()


def segfault() -> None:
    ctypes.string_at(0)


def leave(status: int) -> None:
    sys.exit(status)


def die_of(name: str, saying: str = "") -> None:
    print(saying)
    os.kill(os.getpid(), getattr(signal, name))


def hang_with_child(pids: str) -> None:
    """Hang in native code that never releases the interpreter's lock, beside a process of its own."""
    child = subprocess.Popen(["sleep", "60"])
    Path(pids).write_text(f"{os.getpid()} {child.pid}", encoding="ascii")
    ctypes.PyDLL(None).sleep(60)


def announce_and_sleep(pids: str) -> None:
    Path(pids).write_text(str(os.getpid()), encoding="ascii")
    time.sleep(60)


def allocate(size: int) -> int:
    return int(np.ones(size, np.uint8).sum(dtype=np.int64))


def leak(size: int) -> int:
    _leaks.append(np.ones(size, np.uint8))
    return os.getpid()


def read_mapped(path: str) -> int:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[-1] + len(content)


def double(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return data * np.uint8(2)


def fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk_within() -> None:
    try:
        fill_disk()
    except OSError as error:
        raise ValueError(f"cannot go on: {error}") from error


def fill_disk_by_message() -> None:
    raise CompileError("error: IO failure on output stream: No space left on device")


def exhaust_disk() -> None:
    raise RuntimeError("file.c:1: RESOURCE_EXHAUSTED; failed to write: No space left on device")


def fill_disk_with_weights() -> None:
    """No file may grow further than a page while they are written; IREE is imported by this job alone."""
    from sartor.runtime.driver.iree_runtime import write_parameters

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (mmap.PAGESIZE, hard))
        try:
            write_parameters(Path(folder, "model.irpa"), {"w0": np.zeros(mmap.PAGESIZE, np.float32)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def exhaust_disk_and_crash() -> None:
    crash("RESOURCE_EXHAUSTED; failed to write: No space left on device")


def fill_disk_and_crash() -> None:
    crash("LLVM ERROR: IO failure on output stream: No space left on device")


def die_of_kill() -> None:
    die_of("SIGKILL")


def die_of_stop() -> None:
    die_of("SIGSTOP")


def fail_first(marker: str, how: str, seconds: float) -> tuple[float, float]:
    """Fail in some way unless that has been done; when it began and ended."""
    begin = time.monotonic()
    time.sleep(seconds)
    if marker and not Path(marker).exists():
        Path(marker).touch()
        globals()[how]()
    return begin, time.monotonic()


def _pool() -> socket.socket:
    """The connection to the pool, whose number is the program's argument."""
    return socket.socket(fileno=os.dup(int(sys.orig_argv[-1])))


def stop_within_answer() -> None:
    _pool().sendall(struct.pack(">Q", 1000) + b"half")
    os.kill(os.getpid(), signal.SIGSTOP)


def hang_within_answer() -> None:
    _pool().sendall(struct.pack(">Q", 1000) + b"half")
    time.sleep(60)


def hang_up() -> None:
    os.close(int(sys.orig_argv[-1]))
    time.sleep(60)


def announce_endless_answer() -> None:
    _pool().sendall(struct.pack(">Q", 1 << 62))
    time.sleep(60)


def close_ears(asked: str, closed: str) -> None:
    """Read nothing any more once the file ``asked`` exists; then ``closed`` exists, too."""
    threading.Thread(target=_stop_main_thread, args=(Path(asked), Path(closed)), daemon=True).start()


def _stop_main_thread(asked: Path, closed: Path) -> None:
    """Keep the interpreter's lock in native code, and never give it back in between."""
    native = ctypes.PyDLL(None)
    while not asked.exists():
        time.sleep(0.01)
    sys.setswitchinterval(60)
    native.creat(os.fsencode(closed), 0o600)
    native.sleep(60)


def compute_for_ever(niceness: int) -> None:
    os.nice(niceness)
    while True:
        pass


def warn(texts: list[str], logger: str) -> None:
    for text in texts:
        logging.getLogger(logger).warning("%s", text)


def fail() -> None:
    raise ValueError("first line\n  second line")


def fail_as_sartor() -> None:
    raise CompileError("node 'Conv_3' does not compile: use another routine")


def unpicklable() -> Callable[[], int]:
    return lambda: 1


def chatter(lines: int) -> int:
    for _ in range(lines):
        print("x" * 1000)
    print("y" * 1000, file=sys.stderr)
    return lines


def environment(name: str) -> str:
    return os.environ[name]


def affinity() -> tuple[frozenset[int], frozenset[int]]:
    """The processors of this thread, and those of one that was started before the job."""
    if not _threads:
        started = threading.Event()

        def idle() -> None:
            _threads.append(threading.get_native_id())
            started.set()
            threading.Event().wait()

        threading.Thread(target=idle, daemon=True).start()
        started.wait()
    return frozenset(os.sched_getaffinity(0)), frozenset(os.sched_getaffinity(_threads[0]))

"""Copies of this process, which have all that it has imported, in place of programs that would import it again."""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_POLL_SECONDS = 0.005
_AT_ONCE = 1 << 16


class Copy:
    """A copy of this process, with what is used of ``subprocess.Popen``.

    Attributes:
        pid: of the process.
        stdin: what it reads on its connection.
        stdout: what it prints, on its standard error, too.
        returncode: as ``Popen`` has it.
    """

    def __init__(self, pid: int, stdin: socket.socket, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """How the process ended; None if it has not ended."""
        with self._lock:
            if self.returncode is None:
                try:
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:
                    # Whoever started this process lets it ignore the ends of others: how it ended nobody knows.
                    ended, status = self.pid, 0
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: if that takes longer.
        """
        begin = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - begin >= timeout:
                raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, sent: bytes = b"", timeout: float | None = None) -> tuple[None, bytes]:
        """Send something, and wait for the end of the process; returns what it prints as ``Popen`` does errors.

        What a process that has ended does not read is no error, as it prints why it has.

        Raises:
            OSError: if nothing can be sent for another reason.
            subprocess.TimeoutExpired: if that takes longer.
        """
        with self.stdin, suppress(BrokenPipeError, ConnectionResetError):
            if sent:
                self.stdin.sendall(sent)
        printed = self._printed(timeout)
        self.wait()
        return None, printed

    def _printed(self, timeout: float | None) -> bytes:
        end, printed = None if timeout is None else time.monotonic() + timeout, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            while selector.select(None if end is None else max(0.0, end - time.monotonic())):
                chunk = os.read(self.stdout.fileno(), _AT_ONCE)
                if not chunk:
                    return printed
                printed += chunk
        raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout or 0.0)


def may_copy() -> bool:
    """Whether this process can be copied. Locks that other threads hold would stay locked in the copy, and on other
    systems than Linux libraries may not work in it.
    """
    return sys.platform == "linux" and threading.active_count() == 1


def copied(run: Callable[[socket.socket], None], *closing: socket.socket | IO[bytes], leads: bool) -> Copy:
    """Copy this process if it ``may_copy``; the copy runs a function with a connection, and ends.

    As a program that is started, it has no files but its connection and its output, and no handlers of signals.

    Args:
        run: called in the copy.
        closing: connections and files of this process, which the copy must not keep.
        leads: whether it has a process group of its own.

    Raises:
        OSError: if there cannot be another process.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    own, connection = socket.socketpair()
    reader, writer = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if not pid:
        _run_and_end(run, parent, connection, writer, [own, *closing], leads=leads)
    connection.close()
    os.close(writer)
    # Whoever is first: it is to be killed by its group from now on.
    with suppress(OSError):
        if leads:
            os.setpgid(pid, pid)
    return Copy(pid, own, os.fdopen(reader, "rb"))


def _run_and_end(
    run: Callable[[socket.socket], None],
    parent: int,
    connection: socket.socket,
    output: int,
    closing: Sequence[socket.socket | IO[bytes]],
    *,
    leads: bool,
) -> None:
    """Run a function in a copy of ``parent``, and end the copy, of which no caller may run on."""
    code = 1
    try:
        if leads:
            os.setpgid(0, 0)
        _forget_signals()
        _take_files(output, connection, closing)
        logging.getLogger().handlers.clear()
        # What was imported stays for as long as the process.
        gc.freeze()
        gc.enable()
        if os.getppid() == parent:
            run(connection)
        code = 0
    except BaseException:  # noqa: BLE001 whatever it is, no caller may run on in a copy
        traceback.print_exc()
    finally:
        os._exit(code)


def _forget_signals() -> None:
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _take_files(output: int, connection: socket.socket, closing: Sequence[socket.socket | IO[bytes]]) -> None:
    """Have standard files and a connection, and no other files."""
    for file in closing:
        file.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, _STDIN), (output, _STDOUT), (output, _STDERR)):
        os.dup2(source, target)
    kept = {_STDIN, _STDOUT, _STDERR, connection.fileno()}
    # Not all numbers up to the limit, which may be a billion: some builds of Python would try each.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept:
            # One is where they were listed.
            with suppress(OSError):
                os.close(number)
    sys.stdin = os.fdopen(_STDIN, closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(stream, "w", buffering=1, errors="backslashreplace", closefd=False) for stream in (_STDOUT, _STDERR)
    )

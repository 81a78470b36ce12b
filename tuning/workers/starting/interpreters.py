"""Interpreters that start before it is known what they will do, and get meanwhile what they will surely need."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_PROGRAM = "sartor.tuning.workers.program"
# Others may be read when a library is loaded, which has happened in an interpreter that waits.
_SETTABLE = {"TMPDIR"}


@dataclass(frozen=True)
class Interpreter:
    """A process that runs the program of workers, and this process's end of the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    owner: int

    @staticmethod
    def started(env: Mapping[str, str], *needs: str) -> Interpreter:
        """Start one, with variables in addition to this process's; ``needs`` are as the program takes them."""
        own, remote = socket.socketpair()
        with remote:
            process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", _PROGRAM, str(remote.fileno()), *needs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                pass_fds=(remote.fileno(),),
                process_group=0,
            )
        return Interpreter(process, own, os.getpid())


_WAITING: list[Interpreter] = []
"""They end when this process closes their connections, which it does at its end."""


def start_early(*needs: str, later: Sequence[str] = ()) -> None:
    """Start an interpreter in the thread that will take it: it ends with this thread.

    It imports modules and calls functions (``package.module:name``) that its jobs need, before the first one as long as
    that does not arrive, and what they need ``later`` after it.

    That it cannot start is seen, and said, where one is needed.
    """
    with suppress(OSError):
        _WAITING.append(Interpreter.started({}, *needs, *(["--", *later] if later else [])))


def taken(env: Mapping[str, str]) -> Interpreter:
    """An interpreter that waits, or a new one; what is in ``env`` is yet to be set in one that waited."""
    while _WAITING and env.keys() <= _SETTABLE:
        waiting = _WAITING.pop(0)
        if waiting.owner == os.getpid() and waiting.process.poll() is None:
            return waiting
        waiting.connection.close()
    return Interpreter.started(env)

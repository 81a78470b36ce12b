"""Processes that start before it is known what they will do, and get meanwhile what they will surely need.

They are interpreters, or copies of this process, which need not import again what it has imported.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sartor.tuning.workers.program import serve
from sartor.tuning.workers.starting.copies import Copy, copied, may_copy

_PROGRAM = "sartor.tuning.workers.program"
# Others may be read when a library is loaded, which has happened in a process that waits.
_SETTABLE = {"TMPDIR"}


@dataclass(frozen=True)
class Interpreter:
    """A process that runs the program of workers, and this process's end of the connection to it."""

    process: subprocess.Popen[bytes] | Copy
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

    @staticmethod
    def copied(*needs: str) -> Interpreter:
        """Copy this process to run that program; see ``may_copy``."""
        files = (
            file for waiting in _WAITING for file in (waiting.connection, waiting.process.stdout) if file is not None
        )
        process = copied(partial(serve, needs=needs), *files, leads=True)
        return Interpreter(process, process.stdin, os.getpid())


_WAITING: list[Interpreter] = []
"""They end when this process closes their connections, which it does at its end."""


def start_early(*needs: str, later: Sequence[str] = (), copies: bool = False) -> None:
    """Start a process in the thread that will take it: it ends with this thread.

    It imports modules and calls functions (``package.module:name``) that its jobs need, before the first one as long as
    that does not arrive, and what they need ``later`` after it.

    That it cannot start is seen, and said, where one is needed.

    Args:
        needs, later: as above.
        copies: whether it may be a copy of this process.
    """
    listed = [*needs, *(["--", *later] if later else [])]
    with suppress(OSError):
        is_copy = copies and may_copy()
        _WAITING.append(Interpreter.copied(*listed) if is_copy else Interpreter.started({}, *listed))


def taken(env: Mapping[str, str]) -> Interpreter:
    """A process that waits, or a new interpreter; what is in ``env`` is yet to be set in one that waited."""
    while _WAITING and env.keys() <= _SETTABLE:
        waiting = _WAITING.pop(0)
        if waiting.owner == os.getpid() and waiting.process.poll() is None:
            return waiting
        waiting.connection.close()
    return Interpreter.started(env)

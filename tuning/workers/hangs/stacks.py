"""Stacks of a worker that takes too long: it prints them when it is asked, just before it is killed.

A signal asks, and not a timer that is set with each job: short measurements get no thread beside them, and a job that
ends in time prints nothing. The handler is C code, which needs neither the interpreter's lock nor a thread that runs
Python, so that a worker answers that hangs in a library.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

_ASKING = signal.SIGUSR1
_STDERR = 2
_FRAME = re.compile(r'^  File ".*", line \d+ in (\S+)$')
_NAMED_FRAMES = 3


def answer_requests() -> None:
    """Let this process print the stacks of all threads when it is asked, even if a job closes its stderr."""
    faulthandler.register(_ASKING, file=os.dup(_STDERR), all_threads=True, chain=False)


def ask_for_stacks(pid: int) -> None:
    """Ask a worker, which ends instead if it has not begun to answer requests."""
    with suppress(ProcessLookupError):
        os.kill(pid, _ASKING)


def threads_of(pid: int) -> str:
    """What the kernel knows of a process's threads: name, state, and the kernel's function in which each waits."""
    tasks = Path("/proc") / str(pid) / "task"
    lines: list[str] = []
    with suppress(OSError):
        for task in sorted(tasks.iterdir(), key=lambda task: int(task.name)):
            lines.append(f"thread {task.name} {_read(task / 'comm')}: {_state(task)} {_read(task / 'wchan')}".rstrip())
    return "\n".join(lines)


def innermost(stacks: str) -> str:
    """The innermost functions of the main thread, whose stack is printed last; empty if none was printed."""
    last = re.split(r"^.*\(most recent call first\):$", stacks, flags=re.MULTILINE)[-1]
    frames = [frame[1] for line in last.splitlines() if (frame := _FRAME.match(line))]
    return ", called by ".join(frames[:_NAMED_FRAMES])


def kept(stacks: str) -> Path | None:
    """Write stacks to a new file in the folder for temporary files; None if that has no room."""
    with suppress(OSError):
        number, name = tempfile.mkstemp(prefix="sartor-stacks-", suffix=".txt")
        with open(number, "w", encoding="utf-8") as file:
            file.write(stacks)
        return Path(name)
    return None


def _state(task: Path) -> str:
    return _read(task / "stat").rpartition(")")[2].split(maxsplit=1)[0]


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return "?"

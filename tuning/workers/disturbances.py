"""What the system says about a process that failed: whether the job was to blame or its surroundings.

Linux tells it in ``/proc``; where there is none, jobs are to blame.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DISK_FULL_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# IREE's runtime says it in its own words when it writes a parameter archive.
_DISK_FULL_TEXTS = (*map(os.strerror, _DISK_FULL_NUMBERS), "out of disk space")

DISK_FULL_SIGN = re.compile("|".join(map(re.escape, _DISK_FULL_TEXTS)))
"""How a file that could not be written is reported, by whatever library, in a message or on the way down."""

_PROC = Path("/proc")
_STOPPED = "T"
_STRICT_OVERCOMMIT = 2


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception, or one that led to it, says that a file could not grow."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL_NUMBERS:
            return True
        cause = cause.__cause__ or cause.__context__
    return DISK_FULL_SIGN.search(str(error)) is not None


def is_stopped(pid: int) -> bool:
    """Whether somebody sent a process SIGSTOP; the debugger's stops do not count."""
    fields = _stat(pid)
    return fields is not None and fields[0] == _STOPPED


def oom_kills() -> int:
    """How many processes the kernel has killed so far for want of memory."""
    return _number("vmstat", "oom_kill")


def is_memory_promised(limit: int | None) -> bool:
    """Whether the system has promised others so much memory that a job cannot have the ``limit`` bytes it may take.

    Systems that promise more than they have, which is the default, give it and kill later.
    """
    with suppress(OSError, ValueError):
        if int((_PROC / "sys/vm/overcommit_memory").read_text(encoding="ascii")) == _STRICT_OVERCOMMIT:
            left = _number("meminfo", "CommitLimit:") - _number("meminfo", "Committed_AS:")
            return limit is None or left * 1024 < limit
    return False


@dataclass(frozen=True)
class Usage:
    """Processor time up to a moment, in seconds.

    Attributes:
        moment: by ``time.monotonic()``.
        computed: by a process group, those of its children that have ended included.
        waited: how long its threads, as far as they live, were ready to run while others did.
        others: computed by all other processes of the machine.
    """

    moment: float
    computed: float
    waited: float
    others: float

    @staticmethod
    def of_group(group: int) -> Usage | None:
        """Of a process group until now; None if the system does not say."""
        members = [pid for pid in _processes() if (fields := _stat(pid)) is not None and int(fields[2]) == group]
        return _usage(members)

    @staticmethod
    def of_process(pid: int) -> Usage | None:
        """Of a process without living children until now, which is cheaper; None if the system does not say."""
        return _usage([pid])

    def was_starved(self, since: Usage) -> bool:
        """Whether the group waited most of the time, longer than it computed, and because of others.

        A job with more threads than there are processors waits for itself, and one that sleeps waits for nothing.
        """
        computed, waited, others = (
            self.computed - since.computed,
            self.waited - since.waited,
            self.others - since.others,
        )
        return waited > max(computed, (self.moment - since.moment) / 2) and others > computed


def _usage(pids: list[int]) -> Usage | None:
    try:
        busy = sum(_busy_ticks()) / _ticks_per_second()
        computed = sum(_computed(pid) for pid in pids)
        return Usage(time.monotonic(), computed, sum(_waited(pid) for pid in pids), max(0.0, busy - computed))
    except (OSError, ValueError, IndexError):
        return None


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _busy_ticks() -> list[int]:
    """Of all processors: in programs, nice ones, in the kernel, in interrupts; not idle and not waiting for disks."""
    with (_PROC / "stat").open(encoding="ascii") as file:
        user, nice, system, _, _, *interrupts = map(int, file.readline().split()[1:8])
    return [user, nice, system, *interrupts]


def _computed(pid: int) -> float:
    fields = _stat(pid)
    return 0.0 if fields is None else sum(map(int, fields[11:15])) / _ticks_per_second()


def _waited(pid: int) -> float:
    waited = 0
    for thread in os.listdir(_PROC / str(pid) / "task"):
        with suppress(OSError):
            text = (_PROC / str(pid) / "task" / thread / "schedstat").read_text(encoding="ascii")
            waited += int(text.split()[1])
    return waited / 1e9


def _processes() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
    return []


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` after the name, the state first; None without such a process."""
    with suppress(OSError):
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return None


def _number(file: str, name: str) -> int:
    """The number that follows a name in a file of ``/proc``, 0 if it is not there."""
    with suppress(OSError, ValueError):
        for line in (_PROC / file).read_text(encoding="ascii", errors="replace").splitlines():
            found, _, rest = line.partition(" ")
            if found == name:
                return int(rest.split()[0])
    return 0

"""Finds out from the operating system whether a process failed by its own fault or by its surroundings.

The source is Linux's ``/proc``. On other systems all failures count as the job's own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sartor.workspace import FULL

# IREE's runtime has its own text when it writes a parameter archive.
_DISK_FULL_TEXTS = (*map(os.strerror, FULL), "out of disk space")

DISK_FULL_SIGN = re.compile("|".join(map(re.escape, _DISK_FULL_TEXTS)))
"""Matches messages of any library about a full disk."""

_PROC = Path("/proc")
_STOPPED = "T"
_STRICT_OVERCOMMIT = 2


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception, or one of its causes, says that the disk is full."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in FULL:
            return True
        cause = cause.__cause__ or cause.__context__
    return DISK_FULL_SIGN.search(str(error)) is not None


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal; stops by a debugger do not count."""
    fields = _stat(pid)
    return fields is not None and fields[0] == _STOPPED


def oom_kills() -> int:
    """Number of processes that the kernel has killed since it started because memory ran out."""
    return _number("vmstat", "oom_kill")


def is_memory_promised(limit: int | None) -> bool:
    """Whether the system has committed so much memory to other processes that a job cannot allocate ``limit`` bytes.

    False on systems that overcommit memory, which is the default: these let allocations succeed and kill later.
    """
    with suppress(OSError, ValueError):
        if int((_PROC / "sys/vm/overcommit_memory").read_text(encoding="ascii")) == _STRICT_OVERCOMMIT:
            left = _number("meminfo", "CommitLimit:") - _number("meminfo", "Committed_AS:")
            return limit is None or left * 1024 < limit
    return False


@dataclass(frozen=True)
class Usage:
    """Processor time up to some moment, in seconds.

    Attributes:
        moment: by ``time.monotonic()``.
        computed: processor time of a process group, including children that have ended.
        waited: time that its living threads were ready but did not run, because others did.
        others: processor time of all other processes of the machine.
    """

    moment: float
    computed: float
    waited: float
    others: float

    @staticmethod
    def of_group(group: int) -> Usage | None:
        """The usage of a process group until now; None if the system does not tell."""
        return _usage(group_members(group))

    @staticmethod
    def of_process(pid: int) -> Usage | None:
        """The usage of a single process until now, which is cheaper; None if the system does not tell."""
        return _usage([pid])

    def was_starved(self, since: Usage) -> bool:
        """Whether the group waited most of the time, and longer than it computed, because of other processes.

        A job with more threads than processors waits for its own threads, and a sleeping job does not wait: neither
        counts.
        """
        computed, waited, others = (
            self.computed - since.computed,
            self.waited - since.waited,
            self.others - since.others,
        )
        return waited > max(computed, (self.moment - since.moment) / 2) and others > computed


def group_members(group: int) -> list[int]:
    """The processes of a process group."""
    return _members([group])


def computed_by_groups(groups: Collection[int]) -> float:
    """Processor time of all processes of some process groups, those of their children that have ended included."""
    stats = (_stat(pid) for pid in _members(groups)) if groups else ()
    return sum(_computed(fields) for fields in stats if fields is not None)


def _usage(pids: list[int]) -> Usage | None:
    try:
        busy = sum(_busy_ticks()) / _ticks_per_second()
        computed = sum(computed_seconds(pid) for pid in pids)
        return Usage(time.monotonic(), computed, sum(_waited(pid) for pid in pids), max(0.0, busy - computed))
    except (OSError, ValueError, IndexError):
        return None


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _busy_ticks() -> list[int]:
    """Busy ticks of all processors: user, nice, system and interrupts; without idle time and waiting for disks."""
    with (_PROC / "stat").open(encoding="ascii") as file:
        user, nice, system, _, _, *interrupts = map(int, file.readline().split()[1:8])
    return [user, nice, system, *interrupts]


def computed_seconds(pid: int) -> float:
    """Processor time of a process, those of its children that have ended included."""
    fields = _stat(pid)
    return 0.0 if fields is None else _computed(fields)


def _computed(fields: list[str]) -> float:
    return sum(map(int, fields[11:15])) / _ticks_per_second()


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


def _members(groups: Collection[int]) -> list[int]:
    """The processes of some process groups. To ask for a group takes a hundredth of reading what a process does."""
    members = []
    for pid in _processes():
        with suppress(OSError):
            if os.getpgid(pid) in groups:
                members.append(pid)
    return members


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` after the name, beginning with the state; None if the process is gone."""
    with suppress(OSError):
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return None


def _number(file: str, name: str) -> int:
    """The number that follows ``name`` in a file of ``/proc``; 0 if it is missing."""
    with suppress(OSError, ValueError):
        for line in (_PROC / file).read_text(encoding="ascii", errors="replace").splitlines():
            label, _, rest = line.partition(" ")
            if label == name:
                return int(rest.split()[0])
    return 0

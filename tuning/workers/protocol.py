"""What the pool and its worker processes say to each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

OUT_OF_MEMORY_SIGN = re.compile(
    r"std::bad_alloc|LLVM ERROR: out of memory|MemoryError|RESOURCE_EXHAUSTED|Cannot allocate memory"
    r"|pthread_create failed|can't start new thread"
)
"""How libraries that do not raise MemoryError say, in a message or on the way down, that memory ran out."""

JOB_BEGINS = b"\0sartor: a job begins\0"
"""What a worker prints before each job: only the order within the pipe tells one job's output from the next one's."""


class JobStatus(StrEnum):
    """How a job ended; the values that ``Status`` has too mean the same there."""

    OK = "ok"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    STARVED = "starved"
    MEMORY_SHORT = "memory_short"
    DISK_FULL = "disk_full"

    @property
    def is_transient(self) -> bool:
        """Whether the job failed of what surrounded it, so that it may well succeed when that is over.

        It was killed or stopped from outside, had to leave the processor to others until its time was over, or the
        machine had no memory or no room on the disk.
        """
        return self in (JobStatus.KILLED, JobStatus.STARVED, JobStatus.MEMORY_SHORT, JobStatus.DISK_FULL)


@dataclass(frozen=True)
class Setup:
    """The first message to a worker.

    Attributes:
        path: the parent's ``sys.path``, so that job functions are found where the parent finds them.
        initializer: ``package.module:function`` to call once, or None.
        memory_limit: bytes that jobs may allocate beyond what the started worker holds, or None.
    """

    path: tuple[str, ...]
    initializer: str | None
    memory_limit: int | None


@dataclass(frozen=True)
class Request:
    """A job: call ``function`` (``package.module:name``) with ``arguments``, bound to ``affinity``."""

    function: str
    arguments: Mapping[str, Any]
    affinity: frozenset[int] | None


@dataclass(frozen=True)
class Reply:
    """The answer to the setup and to every job; a message with the pickled result precedes it.

    Attributes:
        status: OK, FAILED, OUT_OF_MEMORY or DISK_FULL; a worker that ended otherwise cannot answer.
        message: the exception in one line, empty if OK.
        seconds: how long the function ran.
        growth: bytes that jobs left allocated beyond what the started worker held.
    """

    status: JobStatus
    message: str
    seconds: float
    growth: int

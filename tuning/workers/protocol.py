"""Messages between the pool and its worker processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sartor.errors import SartorError

OUT_OF_MEMORY_SIGN = re.compile(
    r"std::bad_alloc|LLVM ERROR: out of memory|MemoryError|RESOURCE_EXHAUSTED|Cannot allocate memory"
    r"|ERROR_OUT_OF_(?:HOST_|DEVICE_|POOL_)?MEMORY"
    r"|pthread_create failed|can't start new thread"
)
"""Matches messages about exhausted memory of libraries that do not raise MemoryError."""

JOB_BEGINS = b"\0sartor: a job begins\0"
"""A worker prints this before each job, to separate the output of jobs in the pipe."""


class JobStatus(StrEnum):
    """How a job ended. Values that ``Status`` also has mean the same there."""

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
        """Whether the job failed because of its surroundings, so that it may succeed later.

        It was killed or stopped from outside, did not get processor time until it timed out, or the machine's memory
        or disk was full.
        """
        return self in (JobStatus.KILLED, JobStatus.STARVED, JobStatus.MEMORY_SHORT, JobStatus.DISK_FULL)


@dataclass(frozen=True)
class WorkerError:
    """An error for the user, returned from a worker to the main process."""

    error: SartorError


@dataclass(frozen=True)
class Setup:
    """The first message to a worker.

    Attributes:
        path: the parent's ``sys.path``, by which the worker imports job functions.
        initializer: ``package.module:function`` to call once, or None.
        memory_limit: bytes that jobs may allocate beyond what the started worker holds, or None.
        environment: variables in addition to those that the worker was started with.
    """

    path: tuple[str, ...]
    initializer: str | None
    memory_limit: int | None
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Request:
    """A job: call ``function`` (``package.module:name``) with ``arguments``, bound to the processors ``affinity``."""

    function: str
    arguments: Mapping[str, Any]
    affinity: frozenset[int] | None


@dataclass(frozen=True)
class Logged:
    """A log record of a job, which the parent logs as its own: logger, level and text."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True)
class Reply:
    """The answer to the setup and to every job; a message with the pickled result precedes it.

    Attributes:
        status: OK, FAILED, OUT_OF_MEMORY or DISK_FULL; with other statuses there is no answer.
        message: the exception in one line, empty if OK.
        seconds: run time of the function.
        growth: bytes that jobs left allocated beyond what the started worker held.
        is_spent: whether a device failed, which it may do from now on in this process.
        logged: warnings and errors that the job logged.
    """

    status: JobStatus
    message: str
    seconds: float
    growth: int
    is_spent: bool
    logged: tuple[Logged, ...] = ()

"""Calls of functions in a worker whose errors are the user's to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.errors import SartorError
from sartor.tuning.workers.pool import JobStatus, WorkerPool
from sartor.workspace import workspace

_MEMORY_LIMIT = 12 << 30


@dataclass(frozen=True)
class Refusal:
    """An error for the user, carried over the process border."""

    error: SartorError


def call(pool: WorkerPool, function: str, arguments: Mapping[str, Any], step: str, timeout: float) -> Any:
    """What ``function`` (``package.module:name``) returns in a worker.

    Raises:
        SartorError: that it returned as a refusal.
        CompileError: if it did not return; ``step`` says what was being done.
        DisturbedError: if that was none of its own doing.
    """
    (result,) = pool.map_unordered(function, [(step, arguments)], timeout)
    if result.status is not JobStatus.OK:
        raise result.error(step)
    if isinstance(result.value, Refusal):
        raise result.value.error
    return result.value


@contextmanager
def open_pool(count: int) -> Iterator[tuple[WorkerPool, Path]]:
    """Workers that cannot eat the machine, and a directory; both gone at the end, with what workers wrote to theirs."""
    with workspace() as directory:
        temporary = directory / "tmp"
        temporary.mkdir()
        with WorkerPool(count, memory_limit=_MEMORY_LIMIT, env={"TMPDIR": str(temporary)}) as pool:
            yield pool, directory


@contextmanager
def as_file(prepared: bytes | Path) -> Iterator[Path]:
    """A prepared model as a file, which is not sent to a worker again with every call."""
    if isinstance(prepared, Path):
        yield prepared
        return
    with workspace() as directory:
        path = directory / "prepared.onnx"
        path.write_bytes(prepared)
        yield path

"""Calls of functions in a worker whose errors are the user's to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from sartor.errors import SartorError
from sartor.progress import Progress
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobStatus, WorkerPool
from sartor.workspace import workspace

TIMEOUT = 900.0
"""Seconds after which a call counts as hung, if there is no better reason to give up sooner."""

_MEMORY_LIMIT = 12 << 30


@dataclass(frozen=True)
class WorkerError:
    """An error for the user, carried over the process border."""

    error: SartorError


class Resumable(Protocol):
    """What is known so far of something that takes many calls."""

    @property
    def done(self) -> int:
        """How many of its parts are done."""


_Result = TypeVar("_Result")
_State = TypeVar("_State", bound=Resumable)


def call(
    pool: WorkerPool,
    function: Callable[..., _Result | WorkerError],
    arguments: Mapping[str, Any],
    step: str,
    timeout: float = TIMEOUT,
    *,
    quiet: bool = False,
) -> _Result:
    """What a function of a module returns in a worker.

    Args:
        pool: workers.
        function: what to call.
        arguments: by name.
        step: what is being done, for errors.
        timeout: seconds that the call may take.
        quiet: as for ``WorkerPool.map_unordered``.

    Raises:
        SartorError: that the function returned as a refusal.
        CompileError: if it did not return.
        DisturbedError: if that was none of its own doing.
    """
    (result,) = pool.map_unordered(entry_point(function), [(step, arguments)], timeout, quiet=quiet)
    if result.status is not JobStatus.OK:
        raise result.error(step)
    if isinstance(result.value, WorkerError):
        raise result.value.error
    return cast(_Result, result.value)


def call_until_done(
    pool: WorkerPool,
    function: Callable[..., _State | WorkerError],
    arguments: Mapping[str, Any],
    state: _State,
    total: int,
    step: str,
    *,
    progress: Progress,
    seconds: float = 2.0,
) -> _State:
    """Call a function again and again, each time with the state that it returned, until all parts are done.

    So progress is seen, and no call takes so long that it seems to hang.

    Args:
        pool: workers.
        function: called with ``arguments``, the state ``before``, and the ``seconds`` after which it begins no further
            part; it does one part at least.
        arguments: by name.
        state: what is known before the first call.
        total: how many parts there are.
        step: what is being done, for errors and progress.
        progress: told how many parts are done.
        seconds: that a call should take.

    Raises:
        SartorError: as ``call``.
    """
    while state.done < total:
        progress(step, state.done, total)
        state = call(pool, function, {**arguments, "before": state, "seconds": seconds}, step)
    progress(step, total, total)
    return state


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

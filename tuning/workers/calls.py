"""Calls functions in a worker and raises their errors for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from sartor.errors import SystemRefusedError, UsageError
from sartor.progress import Progress
from sartor.tuning.workers.beside.ahead import Ahead
from sartor.tuning.workers.disturbances import is_disk_full
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.hangs.stacks import innermost, kept
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from sartor.tuning.workers.process import first_line
from sartor.tuning.workers.protocol import WorkerError
from sartor.tuning.workers.sharing import Turns
from sartor.workspace import TemporaryFolderError, check_temporary_name, workspace

TIMEOUT = 900.0
"""Default number of seconds after which a call is killed."""

MEMORY_LIMIT = 12 << 30
"""Bytes that a job may allocate."""


class Resumable(Protocol):
    """The state of a computation that takes several calls."""

    @property
    def done(self) -> int:
        """Number of parts that are done."""


Opening = Callable[[int, Path, Turns | None], AbstractContextManager[WorkerPool]]

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
    """Call a function in a worker; returns its result.

    Args:
        pool: workers.
        function: a function of a module.
        arguments: keyword arguments.
        step: description of the step, for errors.
        timeout: seconds that the call may take.
        quiet: whether to run it in the only busy worker, as for measuring (``WorkerPool.map_unordered``).

    Raises:
        SartorError: the error that the function returned as a ``WorkerError``.
        CompileError: if the function raised, crashed or took too long.
        DisturbedError: if the worker was disturbed from outside.
    """
    (result,) = pool.map_unordered(entry_point(function), [(step, arguments)], timeout, quiet=quiet)
    return cast(_Result, _value(result, step))


def call_each(
    pool: WorkerPool,
    function: Callable[..., _Result | WorkerError],
    arguments: Sequence[Mapping[str, Any]],
    step: str,
    timeout: float = TIMEOUT,
) -> list[_Result]:
    """Call a function several times, side by side in all workers; returns the results in order.

    Args:
        pool, function, step, timeout: as for ``call``.
        arguments: keyword arguments of each call.

    Raises:
        SartorError, CompileError, DisturbedError: as ``call``, of the first call that failed, in order.
    """
    names = [f"{step} {number}" for number in range(len(arguments))]
    jobs = list(zip(names, arguments, strict=True))
    results = {result.job_id: result for result in pool.map_unordered(entry_point(function), jobs, timeout)}
    return [cast(_Result, _value(results[name], step)) for name in names]


def _value(result: JobResult, step: str) -> object:
    """What a call returned, or its error."""
    if result.status is not JobStatus.OK:
        raise _with_place(result).error(step)
    if isinstance(result.value, WorkerError):
        raise result.value.error
    return result.value


def begin(
    pool: WorkerPool, function: Callable[..., _Result], arguments: Mapping[str, Any], step: str
) -> Ahead[_Result] | None:
    """Begin to call a function in a process of its own; None if it should not begin now (``WorkerPool.ahead``)."""
    return pool.ahead(entry_point(function), arguments, step, TIMEOUT)


def _with_place(result: JobResult) -> JobResult:
    """Add where a job hung, and the file that says it in full: the next run of the command may not hang."""
    if not result.stacks:
        return result
    head = first_line(result.message)
    where, file = innermost(result.stacks), kept(result.stacks)
    named = f", in {where}" if where else ""
    filed = f"; what its threads did is in '{file}', to be reported with the command" if file else ""
    return replace(result, message=head + named + filed + result.message[len(head) :])


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
    """Call a function repeatedly, each time with the state that it returned last, until all parts are done.

    Several short calls report progress, and none of them reaches the time limit.

    Args:
        pool: workers.
        function: called with ``arguments``, the state ``before``, and the ``seconds`` after which it begins no further
            part; it does at least one part.
        arguments: keyword arguments.
        state: the state before the first call.
        total: number of parts.
        step: description of the step, for errors and progress.
        progress: told the number of parts that are done.
        seconds: time that a call should take.

    Raises:
        SartorError: as ``call``.
    """
    while state.done < total:
        progress(step, state.done, total)
        state = call(pool, function, {**arguments, "before": state, "seconds": seconds}, step)
    progress(step, total, total)
    return state


@contextmanager
def open_pool(
    count: int, turns: Turns | None = None, opening: Opening | None = None
) -> Iterator[tuple[WorkerPool, Path]]:
    """A pool of ``count`` workers with limited memory, and a temporary directory; both are removed at the end.

    Args:
        count: number of processes.
        turns: as for ``WorkerPool``.
        opening: opens another pool than one of this machine, by the number, a folder for temporary files, and turns.

    Raises:
        UsageError: if the temporary folder cannot be used.
        SystemRefusedError: if there is no room in it.
    """
    try:
        check_temporary_name()
        with workspace() as directory:
            temporary = directory / "tmp"
            temporary.mkdir()
            with (opening or _open_local)(count, temporary, turns) as pool:
                yield pool, directory
    except TemporaryFolderError as error:
        kind = SystemRefusedError if is_disk_full(error) else UsageError
        raise kind(error.strerror) from None


def _open_local(count: int, folder: Path, turns: Turns | None) -> WorkerPool:
    return WorkerPool(count, memory_limit=MEMORY_LIMIT, env={"TMPDIR": str(folder)}, turns=turns)


@contextmanager
def as_file(prepared: bytes | Path) -> Iterator[Path]:
    """Write a prepared model to a temporary file, if it is not in one, so that calls need not send its bytes."""
    if isinstance(prepared, Path):
        yield prepared
        return
    with workspace() as directory:
        path = directory / "prepared.onnx"
        path.write_bytes(prepared)
        yield path

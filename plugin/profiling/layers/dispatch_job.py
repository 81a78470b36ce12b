"""Times dispatches in a worker, because IREE's tool writes to the temporary folder and may hang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sartor.errors import SartorError
from sartor.runtime.dispatch_statistics import DispatchStatistics, dispatch_statistics
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_STEP = "timing dispatches"


def dispatches_in_worker(pool: WorkerPool, arguments: Mapping[str, Any]) -> DispatchStatistics:
    """Call ``dispatch_statistics`` with named arguments in a worker.

    Raises:
        CompileError: if the worker dies.
        SartorError: as ``dispatch_statistics``.
    """
    return call(pool, time_dispatches, {"arguments": arguments}, _STEP, quiet=True)


def time_dispatches(arguments: Mapping[str, Any]) -> DispatchStatistics | WorkerError:
    """Worker side of ``dispatches_in_worker``."""
    try:
        return dispatch_statistics(**arguments)
    except SartorError as error:
        return WorkerError(error)

"""``sartor worker``: a Dask worker that measures on this machine, and comes back when the scheduler does."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
from distributed import Worker

from sartor.tuning.cluster.link import Scheduler
from sartor.tuning.cluster.machine import REPORT, Machine
from sartor.tuning.cluster.service import Service, begin_service, end_service
from sartor.workspace import workspace

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 2.0
# Dask looks at its threads' stacks a hundred times a second, and at the machine twice: both disturb measurements.
_UNDISTURBED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.retry.count": 0,
}


def serve(scheduler: Scheduler, machine: Machine, told: Callable[[str], None], port: int = 0) -> None:
    """Work for a scheduler until the process is interrupted; if it is lost, try again until it is back.

    Args:
        scheduler: where it is; TLS is as Dask's configuration says.
        machine: what to report.
        told: told in a sentence when the worker begins, and when it loses the scheduler.
        port: to listen on; 0 for any.
    """
    # After an interrupt Dask looks for its folder when the workspace around it is gone, and calls that an error.
    logging.getLogger("distributed.diskutils").setLevel(logging.CRITICAL)
    # An interrupt may come between the begin of a connection and its first step, of which Python warns.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    with workspace() as folder, dask.config.set(_UNDISTURBED):
        mine = folder / "worker"
        mine.mkdir()
        service = Service(machine, mine)
        begin_service(service)
        try:
            asyncio.run(_serve(scheduler, machine, told, port, folder))
        finally:
            end_service(service)


async def _serve(scheduler: Scheduler, machine: Machine, told: Callable[[str], None], port: int, folder: Path) -> None:
    is_lost = False
    while True:
        try:
            async with Worker(**_options(scheduler, machine, port, folder)) as worker:
                is_lost = False
                told(f"working for {scheduler} as {machine.kind_text}")
                await worker.finished()
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            _LOG.debug("no scheduler: %s", error)
        if not is_lost:
            told(f"no scheduler at {scheduler}: trying again until there is one")
        is_lost = True
        await asyncio.sleep(_RETRY_SECONDS)


def _is_cancelled() -> bool:
    """Whether this task was cancelled from outside, by an interrupt, and not something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _options(scheduler: Scheduler, machine: Machine, port: int, folder: Path) -> dict[str, Any]:
    where = scheduler.arguments
    if "address" in where:
        where = {"scheduler_ip": where["address"]}
    return {
        **where,
        "nthreads": 1 + machine.compilers,
        "name": f"{machine.name}-{os.getpid()}-{machine.worker[:6]}",
        "resources": machine.resources,
        "startup_information": {REPORT: lambda _: machine.to_json()},
        "local_directory": str(folder),
        "memory_limit": 0,
        "port": port,
        "death_timeout": 10,
    }

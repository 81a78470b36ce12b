"""``sartor worker``: measure on this machine for compilations on others."""

from __future__ import annotations

from typing import Annotated

import typer

from sartor.cli.output.messages import say
from sartor.errors import UsageError


def worker(
    scheduler: Annotated[
        str, typer.Argument(metavar="tcp://HOST:8786|FILE", help="Address of a Dask scheduler, or the file it wrote.")
    ],
    compilers: Annotated[
        int | None,
        typer.Option(min=0, help="Compilations at a time. (default: one per core, none without the compiler)"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. (default: any)")] = 0,
) -> None:
    """Measure on this machine, for compilations anywhere that name the scheduler by --workers.

    It runs native code that it is sent by whoever reaches the scheduler. See SECURITY.md, also for TLS.
    """
    try:
        from sartor.tuning.cluster.link import Scheduler
        from sartor.tuning.cluster.machine import this_machine
        from sartor.tuning.cluster.server import serve
    except ImportError as error:
        raise UsageError(f"a worker needs Dask ({error}); install it by: pip install 'sartor[cluster]'") from None
    serve(Scheduler.of(scheduler), this_machine(compilers), say, port)

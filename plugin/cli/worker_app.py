"""The typer application of ``sartor worker`` alone, which imports neither the compiler nor ONNX: workers lack both."""

from __future__ import annotations

import typer

from sartor.cli.commands.worker import worker

WORKER = "worker"
"""The name of its command."""

worker_app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
worker_app.command(WORKER)(worker)


@worker_app.callback()
def _sartor() -> None:
    """Measure on this machine for compilations on others."""

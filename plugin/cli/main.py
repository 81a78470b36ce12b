"""Entry points of ``sartor`` and ``compile-to-vmfb``. They import little, so that signals are handled early."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sartor.cli.output.messages import say_warnings
from sartor.cli.output.signals import ending_at_once, unwinding
from sartor.cli.output.streams import open_missing

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Entry point of ``sartor``."""
    open_missing()
    say_warnings()
    with ending_at_once():
        from sartor.cli.output.terminal import run_app

        app = _app()
    with unwinding():
        run_app(app)


def _app() -> typer.Typer:
    """The commands; that of a worker alone if it is called, as all others need packages that a worker may lack."""
    if sys.argv[1:2] == ["worker"]:
        from sartor.cli.worker_app import worker_app

        return worker_app
    from sartor.cli.apps import app

    return app


def compile_main() -> None:
    """Entry point of ``compile-to-vmfb``."""
    open_missing()
    say_warnings()
    with ending_at_once():
        from sartor.cli.apps import compile_app
        from sartor.cli.output.terminal import run_app
    with unwinding():
        run_app(compile_app)

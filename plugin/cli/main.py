"""Entry points of ``sartor`` and ``compile-to-vmfb``. They import little, so that signals are handled early."""

from __future__ import annotations

from sartor.cli.output.messages import say_warnings
from sartor.cli.output.signals import ending_at_once, unwinding
from sartor.cli.output.streams import open_missing


def main() -> None:
    """Entry point of ``sartor``."""
    open_missing()
    say_warnings()
    with ending_at_once():
        from sartor.cli.apps import app
        from sartor.cli.output.terminal import run_app
    with unwinding():
        run_app(app)


def compile_main() -> None:
    """Entry point of ``compile-to-vmfb``."""
    open_missing()
    say_warnings()
    with ending_at_once():
        from sartor.cli.apps import compile_app
        from sartor.cli.output.terminal import run_app
    with unwinding():
        run_app(compile_app)

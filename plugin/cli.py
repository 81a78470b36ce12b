"""Entry points of ``sartor`` and ``compile-to-vmfb``: light, so that signals are heeded while the rest is loaded."""

from __future__ import annotations

from sartor.messages import say_warnings
from sartor.signals import end_at_once_when_asked, unwind_when_asked


def main() -> None:
    """Entry point of ``sartor``."""
    say_warnings()
    end_at_once_when_asked()
    from sartor.apps import app
    from sartor.terminal import run_app

    unwind_when_asked()
    run_app(app)


def compile_main() -> None:
    """Entry point of ``compile-to-vmfb``."""
    say_warnings()
    end_at_once_when_asked()
    from sartor.apps import compile_app
    from sartor.terminal import run_app

    unwind_when_asked()
    run_app(compile_app)

"""Entry points of ``sartor`` and ``compile-to-vmfb``: light, so that Ctrl-C is heeded while the rest is loaded."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sartor.errors import INTERRUPTED
from sartor.messages import say, say_warnings


def main() -> None:
    """Entry point of ``sartor``."""
    say_warnings()
    with _interrupts_end_the_process():
        from sartor.apps import app
        from sartor.terminal import run_app
    run_app(app)


def compile_main() -> None:
    """Entry point of ``compile-to-vmfb``."""
    say_warnings()
    with _interrupts_end_the_process():
        from sartor.apps import compile_app
        from sartor.terminal import run_app
    run_app(compile_app)


@contextmanager
def _interrupts_end_the_process() -> Iterator[None]:
    """An exception would have to pass through libraries that are being loaded, and some would swallow it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    yield
    signal.signal(signal.SIGINT, before)


def _end(signal_number: int, frame: FrameType | None) -> None:
    say("error: interrupted")
    os._exit(INTERRUPTED)

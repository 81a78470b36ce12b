"""What the command line does when it is asked to end: INT (Ctrl-C), TERM and HUP all let it clean up first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from sartor.messages import say

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
# Terminals and what stands between tell one wish to end twice.
_SAME_WISH_SECONDS = 1.0
_first: list[float] = []


class Interrupted(BaseException):
    """Raised in the main thread when a signal asks the process to end.

    Not an ``Exception``, so that nobody handles it by mistake.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As shells give it."""
        return exit_code(self.number)


def exit_code(number: int) -> int:
    """The exit code of a process that a signal ended."""
    return 128 + number


def end_at_once_when_asked() -> None:
    """While modules are loaded: an exception would have to pass through libraries, and some would swallow it."""
    _install(_end)


def unwind_when_asked() -> None:
    """From now on raise ``Interrupted``; who asks again, and a moment later, does not want to wait."""
    _first.clear()
    _install(_unwind)


def _install(handler: Callable[[int, FrameType | None], None]) -> None:
    """What somebody else handles, or the caller wants ignored (``nohup``), stays as it is."""
    for number in _ASKING:
        if signal.getsignal(number) in (*_DEFAULTS, _end):
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    say("error: interrupted")
    os._exit(exit_code(number))


def _unwind(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if not _first:
        _first.append(now)
        raise Interrupted(number)
    if now - _first[0] > _SAME_WISH_SECONDS:
        _end(number, frame)

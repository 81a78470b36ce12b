"""What the command line does when it is asked to end: INT (Ctrl-C), TERM and HUP all let it clean up first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_STDERR = 2
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


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process when it is asked to, for the time while modules are loaded.

    An exception would have to pass through libraries, and some would swallow it.
    """
    with _handling(_end):
        yield


@contextmanager
def unwinding() -> Iterator[None]:
    """Raise ``Interrupted`` when the process is asked to end; who asks again a moment later does not want to wait."""
    _first.clear()
    with _handling(_unwind):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """What somebody else handles, or the caller wants ignored (``nohup``), stays as it is."""
    before = {number: signal.getsignal(number) for number in _ASKING}
    replaced = {number: each for number, each in before.items() if each in _DEFAULTS}
    for number in replaced:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, each in replaced.items():
            signal.signal(number, each)


def _end(number: int, frame: FrameType | None) -> None:
    # The signal may have come while something was printed, and then Python's own stream must not be entered again.
    with suppress(OSError):
        os.write(_STDERR, b"error: interrupted\n")
    os._exit(exit_code(number))


def _unwind(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if not _first:
        _first.append(now)
        raise Interrupted(number)
    if now - _first[0] > _SAME_WISH_SECONDS:
        _end(number, frame)

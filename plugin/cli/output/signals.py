"""Handles the signals INT (Ctrl-C), TERM and HUP, which let the command line clean up before it ends."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sartor.tuning.workers.beside.stopping import can_stop, current

_STDERR = 2
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
# Seconds within which a second signal counts as the same: terminals and wrappers may send it twice.
_SAME_SIGNAL_SECONDS = 1.0
_first: list[float] = []
_stopped: list[float] = []
_STOPPING = b"stopping: the best plan so far is built, checked and written; Ctrl-C again aborts\n"


class Interrupted(BaseException):
    """Raised in the main thread when a signal asks the process to end.

    It is not an ``Exception``, so that other code does not catch it by mistake.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code for the signal, as shells define it."""
        return exit_code(self.number)


def exit_code(number: int) -> int:
    """The exit code of a process that a signal ended."""
    return 128 + number


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process at once on a signal, for use while modules are loaded.

    An exception would pass through libraries, some of which would swallow it.
    """
    with _handling(_end):
        yield


@contextmanager
def unwinding() -> Iterator[None]:
    """Raise ``Interrupted`` on a signal; a second signal some time later ends the process at once.

    The first Ctrl-C ends tuning early if what runs can do with what is there.
    """
    _first.clear()
    _stopped.clear()
    with _handling(_unwind):
        yield


def settle() -> None:
    """Let signals change nothing any more, as what was asked for is done; call it at the end of ``unwinding``.

    After that block the caller's handlers are back until the interpreter ends, which takes it a tenth of a second.
    """
    for number in _ASKING:
        if signal.getsignal(number) is _unwind:
            signal.signal(number, _pass)
    # What is registered last is run first.
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def _ignore() -> None:
    for number in _ASKING:
        if signal.getsignal(number) in _DEFAULTS:
            signal.signal(number, signal.SIG_IGN)


def _pass(number: int, frame: FrameType | None) -> None:
    """Unlike a signal that is ignored, one that does nothing is not inherited."""


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals by ``handler``, except those that other code handles or the caller ignores (``nohup``)."""
    before = {number: signal.getsignal(number) for number in _ASKING}
    replaced = {number: handler for number, handler in before.items() if handler in _DEFAULTS}
    for number in replaced:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in replaced.items():
            # Who says the same again while the process ends must not change how it ends.
            signal.signal(number, signal.SIG_IGN if _first else former)


def _end(number: int, frame: FrameType | None) -> None:
    # The signal may arrive during printing, when Python's streams must not be used again.
    with suppress(OSError):
        os.write(_STDERR, b"error: interrupted\n")
    os._exit(exit_code(number))


def _unwind(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if number == signal.SIGINT and not _first:
        if can_stop():
            _stopped.append(now)
            with suppress(OSError):
                os.write(_STDERR, _STOPPING)
            current().request()
            return
        if _stopped and now - _stopped[0] <= _SAME_SIGNAL_SECONDS:
            return
    if not _first:
        _first.append(now)
        raise Interrupted(number)
    if now - _first[0] > _SAME_SIGNAL_SECONDS:
        _end(number, frame)

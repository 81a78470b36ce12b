"""Keeps the handlers of signals that ask the process to end, which LLVM replaces."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# More than ``struct sigaction`` has in any C library; the handler is its first member.
_ACTION_BYTES = 512


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """Restore the handlers after a block in which LLVM may install its own, in whatever thread that is.

    It does so when it first creates a file. Its handlers serve one signal and leave the default action to the next, so
    that a second one at once ends the process without cleaning up. Python itself sets handlers in its main thread only,
    and modules are compiled in others too. What Python's main thread sets meanwhile stays.
    """
    library = ctypes.CDLL(None)
    before = {number: (signal.getsignal(number), _action(library, number)) for number in _ASKING}
    try:
        yield
    finally:
        for number, (handler, action) in before.items():
            is_replaced = _address(_action(library, number)) != _address(action)
            if is_replaced and signal.getsignal(number) is handler:
                library.sigaction(number, action, None)


def _action(library: ctypes.CDLL, number: signal.Signals) -> ctypes.Array[ctypes.c_char]:
    """What C's library knows of a signal."""
    array = ctypes.create_string_buffer(_ACTION_BYTES)
    library.sigaction(number, None, array)
    return array


def _address(action: ctypes.Array[ctypes.c_char]) -> bytes:
    """The handler's."""
    return action.raw[: ctypes.sizeof(ctypes.c_void_p)]

"""The standard streams as callers may leave them: closed, full, or read by nobody any more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_missing() -> None:
    """Lead closed streams to nowhere, before a file that is opened gets their number and their output."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def flush() -> None:
    """Write out what stdout holds back.

    Raises:
        OSError: if nobody reads it, or it does not fit.
    """
    sys.stdout.flush()


def give_up_unwritten() -> None:
    """Lead streams that cannot be written to nowhere: the interpreter would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)

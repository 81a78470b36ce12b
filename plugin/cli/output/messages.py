"""Prints lines that are not a command's result: progress, warnings, errors."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress


def say(line: str) -> None:
    """Print to stderr; while bars are shown, rich puts the line above them.

    That nobody listens is no reason to give up what is being done.
    """
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text from a file without control characters, which a terminal would interpret."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


class _Sayer(logging.Handler):
    """Prints log records as lines with their level."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


_HANDLER = _Sayer(logging.WARNING)


def say_warnings() -> None:
    """Print log records of warnings and errors from now on.

    To be called before ``iree.compiler`` is imported, which logs: without a handler, Python would install its own.
    """
    logging.getLogger().addHandler(_HANDLER)

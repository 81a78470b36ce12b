"""Lines for the user that are not a command's result: progress, warnings, errors."""

from __future__ import annotations

import logging
import sys


def say(line: str) -> None:
    """Print to stderr; while bars are shown, rich puts the line above them."""
    print(line, file=sys.stderr, flush=True)


class _Sayer(logging.Handler):
    """Log records as lines for the user, the level in front."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


_HANDLER = _Sayer(logging.WARNING)


def say_warnings() -> None:
    """From now on say what is logged as a warning or worse.

    Before ``iree.compiler`` is imported, which logs, so that Python installs a handler of its own if there is none.
    """
    logging.getLogger().addHandler(_HANDLER)

"""Checks what users pass to a session, before anything fails that would not name it."""

from __future__ import annotations

import os
from os import PathLike

from sartor.errors import UsageError

# What is given by mistake may be the content of a file.
_MOST_QUOTED = 100


def check_type(name: str, value: object, types: tuple[type, ...], expected: str) -> None:
    """Type hints are not checked when a program runs: what fails later would not name the argument."""
    if not isinstance(value, types):
        text = repr(value)
        short = text if len(text) <= _MOST_QUOTED else text[:_MOST_QUOTED] + "…"
        raise UsageError(f"{name} is {short}, expected {expected}")


def check_path(name: str, value: object) -> None:
    """Python finds a NUL only when it opens the file, and then without its name."""
    check_type(name, value, (str, PathLike), "the path of a file")
    text = os.fspath(value)  # type: ignore[call-overload]
    if not isinstance(text, str) or "\0" in text:
        raise UsageError(f"{name} is {text!r}, expected the path of a file, as text without NUL")

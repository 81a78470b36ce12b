"""Checks what users pass to a session, before anything fails that would not name it."""

from __future__ import annotations

import os
from os import PathLike

from sartor.errors import UsageError


def check_type(name: str, value: object, types: tuple[type, ...], expected: str) -> None:
    """Type hints are not checked when a program runs: what fails later would not name the argument."""
    if not isinstance(value, types):
        raise UsageError(f"{name} is {value!r}, expected {expected}")


def check_path(name: str, value: object) -> None:
    """Python finds a NUL only when it opens the file, and then without its name."""
    check_type(name, value, (str, PathLike), "the path of a file")
    text = os.fspath(value)  # type: ignore[call-overload]
    if not isinstance(text, str) or "\0" in text:
        raise UsageError(f"{name} is {text!r}, expected the path of a file, as text without NUL")

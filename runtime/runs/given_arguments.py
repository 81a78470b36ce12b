"""Checks what users pass to a session, before anything fails that would not name it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import NoneType

from sartor.errors import UsageError
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import Signature

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


_OF_SESSIONS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "model": ((str, bytes, PathLike), "the path or the content of a .vmfb"),
    "device": ((str, NativeDevice, NoneType), "a device's name or an open device"),
    "parameters": ((Mapping, NoneType), "weight files by scope"),
    "signature": ((Signature, NoneType), "a Signature"),
    "huge_pages": ((bool,), "True or False"),
    "entry": ((str, NoneType), "the name of a function"),
    "seed": ((int, NoneType), "a whole number"),
    "keep_states": ((bool,), "True or False"),
}


def check_session(
    model: object, parameters: Mapping[str, Path] | None, seed: int | None, others: Mapping[str, object]
) -> None:
    """Check the arguments of a session, ``others`` by their names.

    Raises:
        UsageError: if one is of another type, or no such value; the message names it.
    """
    for name, value in {"model": model, "parameters": parameters, "seed": seed, **others}.items():
        check_type(name, value, *_OF_SESSIONS[name])
    if seed is not None and seed < 0:
        raise UsageError(f"seed is {seed}, expected a whole number of 0 or more")
    for scope, file in (parameters or {}).items():
        check_type("parameters", scope, (str,), "a scope's name")
        check_path("parameters", file)
    if not isinstance(model, bytes):
        check_path("model", model)

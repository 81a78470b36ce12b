"""Parses ages and sizes with units: ``90d``, ``100MiB``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sartor.errors import UsageError

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": float(1 << 10),
    "MiB": float(1 << 20),
    "GiB": float(1 << 30),
}


def read_age(option: str, text: str) -> float:
    """Seconds of an age such as ``90d``; ``option`` is named in errors.

    Raises:
        UsageError: if the text has another form.
    """
    return _read(option, text, _SECONDS, "90d")


def read_size(option: str, text: str) -> int:
    """Bytes of a size such as ``100MiB``; ``option`` is named in errors.

    Raises:
        UsageError: if the text has another form.
    """
    return int(_read(option, text, _BYTES, "100MiB"))


def _read(option: str, text: str, units: Mapping[str, float], example: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", text)
    if not match or match[2] not in units or len(match[1]) > 20:
        raise UsageError(
            f"{option} '{text}' cannot be read, expected a number and one of {', '.join(units)}: {example}"
        )
    return float(match[1]) * units[match[2]]


def show_size(size: int) -> str:
    """A number of bytes as text in MiB."""
    return f"{size / 2**20:.2f} MiB"

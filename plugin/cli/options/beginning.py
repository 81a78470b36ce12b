"""When the command began, from which time budgets count: its imports take a second, beside other programs several."""

from __future__ import annotations

import time

_LAST: list[float] = []


def begin() -> None:
    """Note that a command begins now."""
    _LAST[:] = [time.monotonic()]


def elapsed() -> float:
    """Seconds since the command began; 0 if none did, as where its functions are called by other programs."""
    return time.monotonic() - _LAST[0] if _LAST else 0.0

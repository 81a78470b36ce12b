"""Jobs for workers of a cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path


def note(number: int, log: str, seconds: float) -> int:
    """Take some time; writes when it began and ended, in two lines, and returns the number."""
    path = Path(log)
    with path.open("a") as file:
        file.write(f"begin {number} {os.getppid()} {time.monotonic()}\n")
    time.sleep(seconds)
    with path.open("a") as file:
        file.write(f"end {number} {os.getppid()} {time.monotonic()}\n")
    return number


def abort() -> None:
    """Crash like a miscompiled variant."""
    os.abort()

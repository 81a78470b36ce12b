"""Reports of progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, the number of its parts that are done, and the number of all parts."""


def silent(step: str, done: int, total: int) -> None:
    """Ignore the report."""

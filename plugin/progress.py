"""Reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, the number of its parts that are done, and the number of all parts."""


@runtime_checkable
class Finder(Protocol):
    """Progress that also wants to know what was found so far."""

    def found(self, what: str) -> None:
        """Take a sentence for the user; empty if there is nothing to say any more."""


def tell_found(progress: Progress, what: str) -> None:
    """Tell what was found so far, if anybody wants to know."""
    if isinstance(progress, Finder):
        progress.found(what)


def silent(step: str, done: int, total: int) -> None:
    """Ignore the report."""

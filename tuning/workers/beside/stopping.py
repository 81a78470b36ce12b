"""Ends early what may end early, as measuring, when the user asks for it: what is there by then is used.

A signal handler asks. Work that waits for workers is interrupted there and nowhere else, so that nothing is left half
done; other work looks at the request when it comes to its next step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Stopped(BaseException):
    """Raised in a wait of the main thread when the user asks to end early; whoever is ``interruptible`` catches it.

    It is not an ``Exception``, so that other code does not catch it by mistake.
    """


@dataclass(eq=False)
class Stop:
    """Whether the user has asked to end early.

    Attributes:
        is_requested: whether so.
    """

    is_requested: bool = False
    _ends_waits: bool = False
    _waits: bool = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Where waiting for workers ends with ``Stopped`` once the user asks."""
        self._ends_waits = True
        try:
            yield
        finally:
            self._ends_waits = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Where nothing is lost by ``Stopped``.

        Raises:
            Stopped: if the user asks meanwhile, or asked before.
        """
        self._waits = True
        try:
            self._end()
            yield
        finally:
            self._waits = False

    def request(self) -> None:
        """Ask to end early, in the main thread."""
        self.is_requested = True
        self._end()

    def _end(self) -> None:
        if self.is_requested and self._ends_waits and self._waits:
            raise Stopped


NEVER = Stop()
"""Of work that nobody can stop early."""

_stops = [NEVER]


@contextmanager
def stoppable() -> Iterator[Stop]:
    """While this lasts the user can ask to end early, once."""
    _stops.append(Stop())
    try:
        yield _stops[-1]
    finally:
        _stops.pop()


def current() -> Stop:
    """What the user asks now; ``NEVER`` if nothing ends early."""
    return _stops[-1]


def can_stop() -> bool:
    """Whether something ends early if the user asks, who has not asked yet."""
    return current() is not NEVER and not current().is_requested

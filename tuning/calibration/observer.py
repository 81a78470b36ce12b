"""What calibration asks of the ways to find a tensor's range."""

from __future__ import annotations

from typing import Protocol

from sartor.runtime.driver.signature import Array


class Observer(Protocol):
    """Sees a tensor's values on one sample after the other, and says which range of them to represent.

    Observers can be pickled: they pass from worker to worker with what they have seen.
    """

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""

    def range(self) -> tuple[float, float]:
        """The lowest and highest number to represent; both zero if nothing was seen."""

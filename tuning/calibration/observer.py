"""The interface of calibration methods."""

from __future__ import annotations

from typing import Protocol

from sartor.runtime.driver.signature import Array


class Observer(Protocol):
    """Observes a tensor's values on one sample after another, and chooses the range to represent.

    Observers can be pickled: they pass from worker to worker with their state.
    """

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""

    def range(self) -> tuple[float, float]:
        """The lowest and highest number to represent; both are zero if nothing was observed."""

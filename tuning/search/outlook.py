"""What is still to be found: what measuring variants is expected to bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """What measuring variants of a task is expected to bring.

    Attributes:
        gain: seconds of an inference that it saves.
        cost: of compiling, as a multiple of one short kernel's.
    """

    gain: float
    cost: float

    @property
    def rate(self) -> float:
        """The gain for each unit of cost."""
        return self.gain / self.cost


@dataclass(frozen=True)
class Outlook:
    """What is still to be found.

    Attributes:
        promises: of tasks, by key; empty if nothing predicts.
        seconds: of an inference, as far as that is known or predicted.
    """

    promises: Mapping[str, Promise]
    seconds: float

    def is_less_than(self, fraction: float) -> bool:
        """Whether all promises together are less than a fraction of an inference's time."""
        return bool(self.promises) and sum(promise.gain for promise in self.promises.values()) < fraction * self.seconds

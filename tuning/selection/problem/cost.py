"""The cost of a choice, as a vector."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Objective(StrEnum):
    """The part of the cost that a plan minimises; ``cold+latency`` asks for a plan for each of two.

    ``regret`` is about calls of a network for any size: the worst ratio of their times to the best plan's for each.
    """

    LATENCY = "latency"
    COLD = "cold"
    MEMORY = "memory"
    COLD_LATENCY = "cold+latency"
    REGRET = "regret"

    @property
    def parts(self) -> tuple[Objective, ...]:
        """What single plans minimise."""
        if self is Objective.REGRET:
            return (Objective.LATENCY,)
        return (Objective.COLD, Objective.LATENCY) if self is Objective.COLD_LATENCY else (self,)


@dataclass(frozen=True)
class Cost:
    """Cost vector of a variant or an adapt; costs add along a plan.

    Attributes:
        latency: seconds of one warm inference.
        cold: seconds in which the first inference reads what later ones have in memory.
        memory: bytes of packed weights that nothing else uses.
        error: its squared error, which is added to the sum that predicts the error of the model's outputs
            (``tuning.errors.error_sum``).
        starting: seconds that executing takes longer in the first inference.
        repeated: bytes of weights in a second form, which ``memory`` counts, too.
    """

    latency: float = 0.0
    cold: float = 0.0
    memory: float = 0.0
    error: float = 0.0
    starting: float = 0.0
    repeated: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.latency + other.latency,
            self.cold + other.cold,
            self.memory + other.memory,
            self.error + other.error,
            self.starting + other.starting,
            self.repeated + other.repeated,
        )

    def share(self, readers: int) -> Cost:
        """The part of one of several readers that pay in equal parts."""
        parts = self.latency, self.cold, self.memory, self.error, self.starting, self.repeated
        return Cost(*(part / readers for part in parts))

    @property
    def executing(self) -> float:
        """Seconds of executing in the first inference."""
        return self.latency + self.starting

    def value(self, objective: Objective) -> float:
        """The scalar that ``objective`` minimises."""
        if objective is Objective.COLD:
            return self.executing + self.cold
        return self.memory if objective is Objective.MEMORY else self.latency

"""Searches the bound on a plan's sum of squared errors that uses the error budget without exceeding it.

The sum ranks plans, but does not give the error of the outputs. Simulated plans relate the two; the next bound is
between the sums of a plan within the budget and one beyond it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.tuning.errors.error_budget import ErrorBudget, are_apart


@dataclass(frozen=True)
class TriedPlan:
    """A plan that was selected and simulated.

    Attributes:
        bound: on its sum of squared errors, under which it was selected; None for no bound.
        needed: its sum of squared errors.
        error: its simulated error.
    """

    bound: float | None
    needed: float
    error: float


@dataclass
class BoundSearch:
    """Proposes bounds by the last plans within and beyond the budget.

    Attributes:
        budget: the error budget.
        good: the last plan within it.
        bad: the last plan beyond it.
    """

    budget: ErrorBudget
    good: TriedPlan | None = None
    bad: TriedPlan | None = None

    def add(self, tried: TriedPlan) -> bool:
        """Record a plan; returns whether it keeps to the budget."""
        allowed = self.budget.allows(tried.error)
        if allowed:
            self.good = tried
        else:
            self.bad = tried
        return allowed

    def bound_after(self, tried: TriedPlan) -> float | None:
        """The bound to try next; None if the last plan uses the budget, or no bound is left to try."""
        uses = self.bad is None or self.budget.is_used_by(tried.error)
        if uses and self.budget.allows(tried.error):
            return None
        floor, ceiling = self._floor, self._ceiling
        if not are_apart(floor, ceiling):
            return None
        wanted = self.budget.sum_aimed_at(tried.needed, tried.error)
        if are_apart(floor, wanted) and are_apart(wanted, ceiling):
            return wanted
        return math.sqrt(floor * ceiling) if floor else ceiling / 4

    @property
    def _floor(self) -> float:
        """A bound that is known to be small enough."""
        return self.good.bound or 0.0 if self.good is not None else 0.0

    @property
    def _ceiling(self) -> float:
        """A sum that is known to be too large."""
        return self.bad.needed if self.bad is not None else math.inf

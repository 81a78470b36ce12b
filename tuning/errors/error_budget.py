"""What the outputs of a compilation may be off by: one policy that all steps ask, in one unit.

There are three kinds of numbers for errors. A budget takes and gives the first, and converts the others by it:

- *errors*: of the outputs, by the user's measure. What is allowed, simulated and measured is one of these;
- *relative errors*: what rounding one layer alone makes of the outputs. Cost tables hold them;
- *sums*: of the squares of layers' relative errors (``error_sum``). They are additive: selection limits plans by them.

All margins between what is allowed and what is aimed at are here, so that they can be seen beside each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind
from sartor.tuning.errors.error_sum import grown, moved

MOST_ROUNDED = 0.5
"""Outputs that are further off have nothing to do with what is right, whatever their layers are rounded to."""

# Fractions of the allowed error, in order: plans are aimed between what uses the budget and what is safe.
# A plan that is simulated above this may exceed the budget when it runs: simulation sees other samples and kernels.
_SAFE = 0.95
_AIM = 0.88
# A plan below leaves time on the table: a faster one is looked for.
_USED = 0.8
# After a run showed more than is allowed. It is below 1 as the sum is no more than a model of what layers do.
_AFTER_RUN = 0.9
# What explains a run must allow for this much more: a plan errs by more on other samples, and so do other variants of
# the same kind.
_EXPLAINED = 1.05
# If the fractions 0 and 1 predict errors closer than this ratio, a run cannot tell the fraction.
_TELLING = 1.05
# Sums that are closer to each other than this select the same plan.
_SUMS_APART = 1.05


@dataclass(frozen=True)
class ErrorBudget:
    """How far outputs may be from the right ones.

    Attributes:
        measure: of all errors.
        usual: what is allowed unless the user says otherwise.
        given: the user's own bound; None for the usual one.
    """

    measure: ErrorMeasure
    usual: float
    given: float | None = None

    @property
    def allowed(self) -> float:
        """The largest error that is right."""
        return self.usual if self.given is None else self.given

    @property
    def allowed_relative(self) -> float:
        """The largest relative error that is right; 0 if the measure is another, which says nothing of it."""
        return self.allowed if self.measure == RELATIVE else 0.0

    def allows(self, simulated: float) -> bool:
        """Whether a plan of this simulated error is likely to be right when it runs."""
        return simulated <= _SAFE * self.allowed

    def is_used_by(self, simulated: float) -> bool:
        """Whether a plan of this simulated error leaves no more than is worth looking for."""
        return simulated >= _USED * self.allowed

    def sum_aimed_at(self, needed: float, simulated: float) -> float:
        """The sum at which a plan has the error that is aimed at, if errors grow with sums as one plan says.

        Args:
            needed: the sum of that plan.
            simulated: its error.
        """
        ratio = _AIM * self.allowed / simulated if simulated else math.inf
        return moved(needed, self.measure, ratio) if math.isfinite(ratio) else math.inf

    def sum_after_run(self, needed: float, measured: float) -> float:
        """The sum at which a plan is right when it runs, after one of sum ``needed`` was measured and was not."""
        return moved(needed, self.measure, _AFTER_RUN * min(self.allowed / measured, 1.0))

    def grown(self, error: float, ratio: float) -> float:
        """An error where the relative one is ``ratio`` times as large."""
        return grown(error, self.measure, ratio)

    def explains(self, simulated: float, measured: float) -> bool:
        """Whether a simulated error accounts for a measured one, also on other samples."""
        return simulated >= _EXPLAINED * measured

    @property
    def sees_small_errors(self) -> bool:
        """Whether the measure tells small errors from smaller ones."""
        return self.measure.kind in (MeasureKind.RELATIVE, MeasureKind.COSINE)


def is_telling(least: float, most: float) -> bool:
    """Whether a plan whose error is between these, by what share is assumed, shows what the share is."""
    return most >= _TELLING * least


def are_apart(smaller: float, larger: float) -> bool:
    """Whether a limit on the sum at the larger of two may select another plan than one at the smaller."""
    return smaller * _SUMS_APART < larger

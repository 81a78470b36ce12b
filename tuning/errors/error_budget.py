"""The allowed error of a compilation's outputs: one policy in one unit, for selecting plans and for judging runs.

There are three kinds of numbers for errors. A budget takes and returns the first kind, and converts the others:

- *errors* of the outputs, by the user's measure: allowed, simulated and measured errors;
- *relative errors* of the outputs when one layer alone is rounded: cost tables hold these;
- *sums* of squared relative errors of layers (``error_sum``): they are additive, and selection limits plans by them.

All margins between the allowed error and the error that plans aim at are defined here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind
from sartor.tuning.errors.error_sum import grown, moved

MOST_ROUNDED = 0.5
"""An output with a larger relative error is useless, so no layer may cause it."""

# Fractions of the allowed error. Plans aim at an error between ``_USED`` and ``_SAFE``.
# A plan simulated above this may exceed the budget when it runs: the simulation has other samples and kernels.
_SAFE = 0.95
_AIM = 0.88
# Below this a faster plan with a larger error is searched for.
_USED = 0.8
# The aim after a run exceeded the budget. It is below 1 because the sum is only a model of the error.
_AFTER_RUN = 0.9
# A prediction explains a run only if it exceeds the measured error by this factor: on other samples, and with similar
# variants, the error may be larger.
_EXPLAINED = 1.05
# If the errors predicted for the fractions 0 and 1 are within this ratio, a run cannot determine the fraction.
_TELLING = 1.05
# Limits whose ratio is below this are taken to select the same plan.
_SUMS_APART = 1.05


@dataclass(frozen=True)
class ErrorBudget:
    """How far the outputs may be from the reference outputs.

    Attributes:
        measure: the measure of all errors.
        usual: default bound on the error that layers may add.
        given: the user's bound; None for the default.
        narrow: whether layers may compute in narrower types than the model.
        inherent: error of right outputs by rounding in the model's own types, by the measure; 0 if it is not known.
        amplifies: whether the model rounds so much that right outputs may have any error, so that beyond the bound its
            layers are compared one by one.
        rounds: whether the model rounds values to integers, which hides errors of layers in its outputs, so that layers
            are compared below the bound, too.
    """

    measure: ErrorMeasure
    usual: float
    given: float | None = None
    narrow: bool = False
    inherent: float = 0.0
    amplifies: bool = False
    rounds: bool = False

    @property
    def allowed(self) -> float:
        """The largest error that the layers of a plan may add."""
        return self.usual if self.given is None else self.given

    @property
    def accepted(self) -> float:
        """The largest error of a right network: the user's bound, or else the larger of ``usual`` and ``inherent``."""
        return max(self.usual, self.inherent) if self.given is None else self.given

    @property
    def explicable(self) -> float:
        """The largest error that rounding in a right network explains; a larger error is a defect."""
        return MOST_ROUNDED if self.narrow else max(self.usual, self.inherent)

    @property
    def timed(self) -> float:
        """The largest error with which a network is timed: another compilation may allow more than this one."""
        return math.inf if self.amplifies else max(self.accepted, MOST_ROUNDED)

    @property
    def asks_layers(self) -> bool:
        """Whether a network with a larger error than is accepted may be right by its layers: the user gave no bound."""
        return self.amplifies and self.given is None

    @property
    def allowed_relative(self) -> float:
        """The largest relative error that layers may add; 0 for other measures, which do not limit it."""
        return self.allowed if self.measure == RELATIVE else 0.0

    def allows(self, simulated: float) -> bool:
        """Whether a plan with this simulated error will probably keep to the budget when it runs."""
        return simulated <= _SAFE * self.allowed

    def is_used_by(self, simulated: float) -> bool:
        """Whether a plan with this simulated error uses enough of the budget to stop searching for faster plans."""
        return simulated >= _USED * self.allowed

    def sum_aimed_at(self, needed: float, simulated: float) -> float:
        """The sum at which a plan is predicted to have the aimed error, by the ratio of error and sum of a known plan.

        Args:
            needed: the sum of the known plan.
            simulated: its simulated error.
        """
        ratio = _AIM * self.allowed / simulated if simulated else math.inf
        return moved(needed, self.measure, ratio) if math.isfinite(ratio) else math.inf

    def sum_after_run(self, needed: float, measured: float) -> float:
        """The limit on the sum after a plan with the sum ``needed`` exceeded the budget with the error ``measured``."""
        return moved(needed, self.measure, _AFTER_RUN * min(self.allowed / measured, 1.0))

    def grown(self, error: float, ratio: float) -> float:
        """The error by the measure if the relative error becomes ``ratio`` times as large."""
        return grown(error, self.measure, ratio)

    def explains(self, simulated: float, measured: float) -> bool:
        """Whether a simulated error explains a measured one, with a margin for other samples."""
        return simulated >= _EXPLAINED * measured

    @property
    def sees_small_errors(self) -> bool:
        """Whether the measure distinguishes small errors."""
        return self.measure.kind in (MeasureKind.RELATIVE, MeasureKind.COSINE)


def is_telling(least: float, most: float) -> bool:
    """Whether running a plan can determine the propagated fraction: ``least`` and ``most`` are its errors predicted for
    the fractions 0 and 1.
    """
    return most >= _TELLING * least


def are_apart(smaller: float, larger: float) -> bool:
    """Whether two limits on the sum differ enough to select different plans."""
    return smaller * _SUMS_APART < larger

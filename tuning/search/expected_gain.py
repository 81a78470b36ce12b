"""What measuring variants promises to save: the mean gain if predictions err as they did on what was measured.

A variant that is predicted to be slower than the present choice may be faster, and the more so the further predictions
spread. Both times are taken as lognormal, so that the mean of what the faster one saves is Margrabe's formula (The
value of an option to exchange one asset for another, 1978). Bayesian optimisation calls it expected improvement (Jones,
Schonlau and Welch, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, median

SPREAD = 0.2
"""Standard deviation of the logarithm of measured over predicted times, where few were measured."""

_FEWEST, _FEWEST_TASKS = 8, 2
_LEAST = 0.01
# Of a normal distribution, the standard deviation as a multiple of the median deviation, which ignores single outliers.
_PER_MEDIAN = 1.4826
_NORMAL = NormalDist()


def spread_of(tasks: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The spread of predictions of a task's variants, by pairs of a measured and a predicted time for each task.

    A factor that they have in common is none: it does not change which variant is faster. Errors of a single task, as
    few errors, say nothing of other tasks.
    """
    telling = [errors_of(pairs) for pairs in tasks if len(pairs) > 1]
    errors = [abs(error) for listed in telling for error in listed]
    if len(telling) < _FEWEST_TASKS or len(errors) < _FEWEST:
        return SPREAD
    return max(_LEAST, _PER_MEDIAN * median(errors))


def errors_of(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Errors of the logarithms of one task's predictions, by pairs of a measured and a predicted time.

    They are without their median; what taking that away takes from their spread is given back.
    """
    logs = [math.log(measured / predicted) for measured, predicted in pairs]
    middle = median(logs)
    return [(log - middle) * math.sqrt(len(logs) / (len(logs) - 1)) for log in logs]


def expected_gain(present: float, predicted: float, spread: float) -> float:
    """The mean of what choosing the faster of two variants saves.

    Args:
        present: seconds of the variant that would be chosen otherwise.
        predicted: seconds of the other one.
        spread: of the logarithm of the ratio of both.
    """
    above = (math.log(present / predicted) + spread**2 / 2) / spread
    # Far apart, both products are equal but for rounding.
    return max(0.0, present * _NORMAL.cdf(above) - predicted * _NORMAL.cdf(above - spread))

"""The model of a network's error as a sum of its layers' errors, by which plans are limited before they run.

Rounding errors of different layers are nearly independent. So their squares add up, as in a random walk (Higham and
Mary 2019, A new approach to probabilistic rounding error analysis, section 2). The error cost of a choice is therefore
a squared error, and costs are additive. Running a plan shows how far its error is from the root of the sum, and the
limit is corrected by that ratio. For the correction only the order of the measure must be known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind

_COSINE = ErrorMeasure(MeasureKind.COSINE)


def squared_error(error: float) -> float:
    """The square of a layer's error, which is added to the sum."""
    return error * error


def total(squared_errors: float) -> float:
    """The error that a sum of squared errors predicts: its root."""
    return math.sqrt(squared_errors)


def joined(errors: Iterable[float]) -> float:
    """The root of the sum of squares of layers' errors, which are taken as independent."""
    return total(math.fsum(map(squared_error, errors)))


def layer_measure(measure: ErrorMeasure) -> ErrorMeasure:
    """The measure for errors of single layers: the relative error, or the cosine distance instead of all others."""
    return measure if measure.kind is MeasureKind.RELATIVE else _COSINE


def layer_error(measure: ErrorMeasure, measured: float) -> float:
    """The relative error for an error by ``layer_measure``. For a small angle a, 1 - cos(a) is half of its square."""
    return measured if layer_measure(measure) == RELATIVE else math.sqrt(2 * measured)


def moved(squared_errors: float, measure: ErrorMeasure, ratio: float) -> float:
    """The sum at which the measured error is ``ratio`` times that at the sum ``squared_errors``."""
    return float(squared_errors * ratio ** (2 / _order(measure)))


def grown(measured: float, measure: ErrorMeasure, ratio: float) -> float:
    """The error by ``measure`` if the relative error becomes ``ratio`` times as large."""
    return float(measured * ratio ** _order(measure))


def _order(measure: ErrorMeasure) -> int:
    """The exponent of small relative errors in the measure."""
    return 2 if measure.kind is MeasureKind.COSINE else 1

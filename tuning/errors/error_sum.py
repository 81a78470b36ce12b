"""What layers' errors make of the network's: the model by which plans keep to a limit on error before they run.

Rounding errors of different layers are nearly independent, so their squares add up, not they themselves (a random
walk: Higham and Mary 2019, A new approach to probabilistic rounding error analysis, section 2). A choice's cost in
error is therefore a square, which keeps costs additive. How far the root of the sum is from what a plan does is found
out by running it, and the limit is moved by that; only the order of the measure must be known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind

_COSINE = ErrorMeasure(MeasureKind.COSINE)


def squared_error(error: float) -> float:
    """What a layer's error adds to the sum."""
    return error * error


def total(squared_errors: float) -> float:
    """The error that a sum of addends stands for."""
    return math.sqrt(squared_errors)


def joined(errors: Iterable[float]) -> float:
    """The error of layers that err independently."""
    return total(math.fsum(map(squared_error, errors)))


def layer_measure(measure: ErrorMeasure) -> ErrorMeasure:
    """What single layers' errors are measured by: the network's measure, unless it is blind to small errors."""
    return measure if measure.kind is MeasureKind.RELATIVE else _COSINE


def layer_error(measure: ErrorMeasure, measured: float) -> float:
    """The relative error that ``layer_measure`` stands for: 1 - cos a is half of a squared for small angles."""
    return measured if layer_measure(measure) == RELATIVE else math.sqrt(2 * measured)


def moved(squared_errors: float, measure: ErrorMeasure, ratio: float) -> float:
    """The sum at which the measured error is ``ratio`` times what it is at a sum of ``squared_errors``."""
    return float(squared_errors * ratio ** (2 / _order(measure)))


def grown(measured: float, measure: ErrorMeasure, ratio: float) -> float:
    """The measured error where the relative one is ``ratio`` times as large."""
    return float(measured * ratio ** _order(measure))


def _order(measure: ErrorMeasure) -> int:
    """Of the measure in small relative errors."""
    return 2 if measure.kind is MeasureKind.COSINE else 1

"""The calibration methods by the names that users give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from sartor.tuning.calibration.entropy import EntropyObserver
from sartor.tuning.calibration.min_max import MinMaxObserver
from sartor.tuning.calibration.mse import MseObserver
from sartor.tuning.calibration.observer import Observer
from sartor.tuning.calibration.percentile import PercentileObserver


class CalibrationMethod(StrEnum):
    """How the range of a tensor is found; the value is the name that users give."""

    MIN_MAX = "minmax"
    PERCENTILE = "percentile"
    MSE = "mse"
    ENTROPY = "entropy"


OBSERVERS: Mapping[CalibrationMethod, Callable[[], Observer]] = {
    CalibrationMethod.MIN_MAX: MinMaxObserver,
    CalibrationMethod.PERCENTILE: PercentileObserver,
    CalibrationMethod.MSE: MseObserver,
    CalibrationMethod.ENTROPY: EntropyObserver,
}
"""Each calls the constructor of a method's observer, with default settings."""

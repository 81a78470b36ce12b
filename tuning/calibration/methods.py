"""Methods of calibration: the 8-bit range of a value by its extremes, a percentile, squared errors or entropy.

A percentile is that of Krishnamoorthi 2018, Quantizing deep convolutional networks for efficient inference, and
McKinstry et al. 2018, Discovering Low-Precision Networks Close to Full-Precision Networks for Efficient Embedded
Inference, section 3.

By squared errors: values inside the range are rounded to steps s, with the mean squared error s²/12. Values outside are
clipped to its ends. Sung et al. 2015, Resiliency of Deep Neural Networks under Quantization, and Choukroun et al. 2019,
Low-bit Quantization of Neural Networks for Efficient Inference, choose the step by the same measure.

By entropy, the pseudocode of Migacz 2017, 8-bit Inference with TensorRT (GTC): count the values' magnitudes in 2048
bins. For each number of bins to keep, clip the distribution there, and compare it by the Kullback-Leibler divergence
with the same bins merged to the levels of the 8-bit range and spread out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

import numpy as np

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import FloatArray, StreamingHistogram, finite_values


class Observer(Protocol):
    """Observes a tensor's values on one sample after another, and chooses the range to represent.

    Observers can be pickled: they pass from worker to worker with their state.
    """

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""

    def range(self) -> tuple[float, float]:
        """The lowest and highest number to represent; both are zero if nothing was observed."""


class MinMaxObserver:
    """Keeps the smallest and the largest finite value."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        values = finite_values(array)
        if values.size:
            self._low = min(self._low, float(values.min()))
            self._high = max(self._high, float(values.max()))

    def range(self) -> tuple[float, float]:
        """The smallest and the largest value; both zero if there was none."""
        return (self._low, self._high) if self._low <= self._high else (0.0, 0.0)


DEFAULT_PERCENTILE = 99.99


class PercentileObserver:
    """Keeps ``percentile`` percent of the values, and clips half of the others at each end."""

    def __init__(self, percentile: float = DEFAULT_PERCENTILE) -> None:
        self._cut = (1.0 - percentile / 100.0) / 2
        self._histogram = StreamingHistogram()

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        self._histogram.observe(array)

    def range(self) -> tuple[float, float]:
        """The quantiles between which the kept values lie."""
        return self._histogram.quantile(self._cut), self._histogram.quantile(1.0 - self._cut)


_LEVELS = 255
_CANDIDATES = 256
_SWEEPS = 3


class MseObserver:
    """Searches the best ends among ``_CANDIDATES`` fractions of the range; both at once if ``symmetric``."""

    def __init__(self, *, symmetric: bool = False) -> None:
        self._symmetric = symmetric
        self._histogram = StreamingHistogram()

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        self._histogram.observe(array)

    def range(self) -> tuple[float, float]:
        """The best range, which always contains zero."""
        low, high = min(self._histogram.least, 0.0), max(self._histogram.most, 0.0)
        if low == high or not self._histogram.counts.any():
            return low, high
        tails = _Tails(self._histogram)
        shares = np.arange(1, _CANDIDATES + 1) / _CANDIDATES
        if self._symmetric:
            ends = shares * max(-low, high)
            best = float(ends[np.argmin(tails.errors(-ends, ends))])
            return max(low, -best), min(high, best)
        return self._in_turn(tails, low * shares, high * shares)

    def _in_turn(self, tails: _Tails, lows: FloatArray, highs: FloatArray) -> tuple[float, float]:
        """Choose one end while the other is fixed, in turn: the ends depend on each other only by the step."""
        low, high = lows[-1], highs[-1]
        for _ in range(_SWEEPS):
            high = highs[np.argmin(tails.errors(np.full_like(highs, low), highs))]
            low = lows[np.argmin(tails.errors(lows, np.full_like(lows, high)))]
        return float(low), float(high)


class _Tails:
    """Computes squared errors of ranges from cumulative sums over the histogram's bins."""

    def __init__(self, histogram: StreamingHistogram) -> None:
        self._centres = histogram.centres
        counts = histogram.counts.astype(np.float64)
        moments = [counts, counts * self._centres, counts * self._centres**2]
        self._sums = [np.concatenate([[0.0], np.cumsum(moment)]) for moment in moments]

    def errors(self, lows: FloatArray, highs: FloatArray) -> FloatArray:
        """The sum of squared errors for each pair of a lower and an upper end."""
        first = np.searchsorted(self._centres, lows)
        last = np.searchsorted(self._centres, highs)
        count, total, squares = self._sums
        below = squares[first] - 2 * lows * total[first] + lows**2 * count[first]
        above = [sums[-1] - sums[last] for sums in self._sums]
        beyond = above[2] - 2 * highs * above[1] + highs**2 * above[0]
        inside = (count[last] - count[first]) * ((highs - lows) / _LEVELS) ** 2 / 12
        return np.asarray(below + beyond + inside)


# If there are values of both signs, magnitudes use half of the levels.
_SIGNED_LEVELS, _UNSIGNED_LEVELS = 128, 256
# Compared ranges differ by this many bins. TensorRT compares all ranges, eight times as many.
_STRIDE = 8
# Even a single outlier that is clipped into an empty bin would make the divergence infinite. So this fraction of the
# quantised distribution is spread over all bins, as in MXNet's version of the method.
_SMOOTHING = 1e-4


class EntropyObserver:
    """Clips magnitudes where the Kullback-Leibler divergence is least."""

    def __init__(self) -> None:
        self._magnitudes = StreamingHistogram()
        self._low = self._high = 0.0

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        values = finite_values(array).astype(np.float64, copy=False)
        self._magnitudes.observe(np.abs(values))
        self._low = min(self._low, float(np.min(values, initial=0.0)))
        self._high = max(self._high, float(np.max(values, initial=0.0)))

    def range(self) -> tuple[float, float]:
        """The clipped range, which always contains zero; both ends are zero if nothing but zeros was seen."""
        if not self._magnitudes.counts.any():
            return 0.0, 0.0
        levels = _SIGNED_LEVELS if self._low < 0 < self._high else _UNSIGNED_LEVELS
        limit = _best_count(self._magnitudes.counts.astype(np.float64), levels) * self._magnitudes.width
        return max(self._low, -limit), min(self._high, limit)


def _best_count(counts: FloatArray, levels: int) -> int:
    """The number of bins to keep. Zeros are not in the counts, as every range represents them exactly."""
    used = int(np.flatnonzero(counts)[-1]) + 1
    kept: list[int] = [*range(levels, used, _STRIDE), max(used, levels)]
    divergences = [_divergence(counts, count, levels) for count in kept]
    return kept[int(np.argmin(divergences))]


def _divergence(counts: FloatArray, kept: int, levels: int) -> float:
    """KL(P || Q) of the clipped distribution P and the quantised distribution Q."""
    inside = counts[:kept]
    reference = inside.copy()
    reference[-1] += counts[kept:].sum()
    starts = np.arange(levels) * kept // levels
    occupied = inside > 0
    members = np.add.reduceat(occupied.astype(np.float64), starts)
    means = np.add.reduceat(inside, starts) / np.maximum(members, 1)
    lengths = np.diff(np.append(starts, kept))
    quantised = np.where(occupied, np.repeat(means, lengths), 0.0)
    p, q = reference / reference.sum(), quantised / max(quantised.sum(), 1.0)
    present = p > 0
    p, q = p[present], (1 - _SMOOTHING) * q[present] + _SMOOTHING / np.count_nonzero(present)
    return float(np.sum(p * np.log(p / q)))


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

"""Calibration by mean squared error: the 8-bit range with the smallest sum of squared errors.

Values inside the range are rounded to steps s, with the mean squared error s²/12. Values outside are clipped to its
ends. Sung et al. 2015, Resiliency of Deep Neural Networks under Quantization, and Choukroun et al. 2019, Low-bit
Quantization of Neural Networks for Efficient Inference, choose the step by the same measure.
"""

from __future__ import annotations

import numpy as np

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import FloatArray, StreamingHistogram

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

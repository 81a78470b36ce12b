"""Entropy calibration: the 8-bit range that loses the least information about the distribution of values.

The pseudocode of Migacz 2017, 8-bit Inference with TensorRT (GTC): count the values' magnitudes in 2048 bins. For each
number of bins to keep, clip the distribution there, and compare it by the Kullback-Leibler divergence with the same
bins merged to the levels of the 8-bit range and spread out again.
"""

from __future__ import annotations

import numpy as np

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import FloatArray, StreamingHistogram, finite_values

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

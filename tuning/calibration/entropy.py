"""The range whose 8-bit form loses least information about how values are distributed.

Migacz 2017, 8-bit Inference with TensorRT (GTC), as its pseudocode has it: the values' magnitudes in 2048 bins; for
each number of bins kept, the distribution clipped there is compared, by the Kullback-Leibler divergence, with the same
bins merged to the levels of the 8-bit form and spread out again.
"""

from __future__ import annotations

import numpy as np

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import FloatArray, StreamingHistogram, finite_values

# Magnitudes use half of the levels if there are values of both signs.
_SIGNED_LEVELS, _UNSIGNED_LEVELS = 128, 256
# Ranges compared differ by this many bins; TensorRT compares each, eight times as many.
_STRIDE = 8
# Outliers that are clipped into a bin which was empty would make the divergence infinite, whatever there are of them.
# So a little of the quantised distribution is spread over all bins, as in MXNet's version of the method.
_SMOOTHING = 1e-4


class EntropyObserver:
    """Clips magnitudes where the divergence is least."""

    def __init__(self) -> None:
        self._magnitudes = StreamingHistogram()
        self._low = self._high = 0.0

    def observe(self, array: Array) -> None:
        """Take the values on one more sample into account."""
        values = finite_values(array).astype(np.float64, copy=False)
        self._magnitudes.observe(np.abs(values))
        self._low = min(self._low, float(np.min(values, initial=0.0)))
        self._high = max(self._high, float(np.max(values, initial=0.0)))

    def range(self) -> tuple[float, float]:
        """The clipped range; zero is always in it."""
        if not self._magnitudes.counts.any():
            return 0.0, 0.0
        levels = _SIGNED_LEVELS if self._low < 0 < self._high else _UNSIGNED_LEVELS
        limit = _best_count(self._magnitudes.counts.astype(np.float64), levels) * self._magnitudes.width
        return max(self._low, -limit), min(self._high, limit)


def _best_count(counts: FloatArray, levels: int) -> int:
    """How many bins to keep. Zeros, which are exact in every form, are not among the counts."""
    used = int(np.flatnonzero(counts)[-1]) + 1
    kept: list[int] = [*range(levels, used, _STRIDE), max(used, levels)]
    divergences = [_divergence(counts, count, levels) for count in kept]
    return kept[int(np.argmin(divergences))]


def _divergence(counts: FloatArray, kept: int, levels: int) -> float:
    """KL(P || Q) of the clipped distribution and its quantised form."""
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

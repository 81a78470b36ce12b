"""A histogram of values whose range is not known in advance."""

from __future__ import annotations

import math

import numpy as np

from sartor.runtime.driver.signature import Array

BINS = 2048
_LEAST_WIDTH = float(np.finfo(np.float64).tiny)

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
CountArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class StreamingHistogram:
    """Counts values in ``BINS`` bins of equal width; a value outside doubles the width until it is inside.

    The first bin starts at ``low``, and each bin spans ``width``. Zeros are counted separately, as every 8-bit range
    represents them exactly. Infinite values and NaN are not counted: infinities come from masks.
    """

    def __init__(self) -> None:
        self.counts: CountArray = np.zeros(BINS, np.int64)
        self.zeros = 0
        self.low = 0.0
        self.width = 0.0
        self.least = 0.0
        self.most = 0.0

    @property
    def total(self) -> int:
        """The number of counted values, zeros included."""
        return int(self.counts.sum()) + self.zeros

    @property
    def centres(self) -> FloatArray:
        """The centre of each bin."""
        return self.low + self.width * (np.arange(BINS, dtype=np.float64) + 0.5)

    def observe(self, array: Array) -> None:
        """Count all elements of an array."""
        values = finite_values(array)
        if values.size == 0:
            return
        least, most = float(values.min()), float(values.max())
        first = self.total == 0
        self.least, self.most = (least, most) if first else (min(least, self.least), max(most, self.most))
        nonzero = values[values != 0]
        self.zeros += values.size - nonzero.size
        if nonzero.size:
            self._widen(least, most)
            bins = ((nonzero.astype(np.float64) - self.low) / self.width).astype(np.int64)
            # Rounding may put the largest value after the last bin.
            self.counts += np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)

    def _widen(self, least: float, most: float) -> None:
        """Extend the bins to a range: the first values determine where the bins lie, later ones double their width."""
        if self.width == 0.0:
            self.low = min(least, 0.0)
            self.width = max((max(most, 0.0) - self.low) / BINS, _LEAST_WIDTH)
        while most > self.low + BINS * self.width:
            self._double(offset=0)
        while least < self.low:
            self.low -= BINS * self.width
            self._double(offset=BINS // 2)

    def _double(self, offset: int) -> None:
        """Double the bins' width: merge pairs of bins, and put the first of the merged bins at index ``offset``."""
        joined = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.zeros(BINS, np.int64)
        self.counts[offset : offset + BINS // 2] = joined
        self.width *= 2

    def quantile(self, share: float) -> float:
        """The value below which this fraction of all values lies, interpolated linearly within a bin.

        Args:
            share: the fraction, from 0 to 1.
        """
        if self.total == 0:
            return 0.0
        counts = self.counts.astype(np.float64)
        if self.zeros:
            counts[min(max(math.floor((0.0 - self.low) / max(self.width, _LEAST_WIDTH)), 0), BINS - 1)] += self.zeros
        reached = np.cumsum(counts)
        wanted = share * reached[-1]
        bin_ = int(np.searchsorted(reached, wanted))
        inside = (wanted - (reached[bin_] - counts[bin_])) / counts[bin_] if counts[bin_] else 0.0
        return float(np.clip(self.low + (bin_ + inside) * self.width, self.least, self.most))


def finite_values(array: Array) -> Array:
    """The finite elements of an array, in one dimension."""
    values = array.reshape(-1)
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]

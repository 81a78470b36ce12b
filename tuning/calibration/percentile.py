"""Percentile calibration: the range of almost all values; the rarest at each end are clipped.

After Krishnamoorthi 2018, Quantizing deep convolutional networks for efficient inference, and McKinstry et al. 2018,
Discovering Low-Precision Networks Close to Full-Precision Networks for Efficient Embedded Inference, section 3.
"""

from __future__ import annotations

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import StreamingHistogram

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

"""Min-max calibration: the range of all observed values, without clipping (Jacob et al. 2018, section 3)."""

from __future__ import annotations

import math

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import finite_values


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

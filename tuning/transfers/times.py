"""Times of transfers between two devices, by the size of the tensor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class TransferTimes:
    """Measured times of one direction.

    Attributes:
        points: sizes in bytes, ascending, with seconds: of moving the tensor, and of calling a segment that reads it.
    """

    points: tuple[tuple[int, float], ...]

    def seconds(self, size: int) -> float:
        """Seconds for a tensor of ``size`` bytes: between two measured sizes on the line through both, beyond the
        largest on the line through the last two, and below the smallest what that takes, as the costs are fixed ones.
        """
        if len(self.points) == 1 or size <= self.points[0][0]:
            return self.points[0][1]
        index = min(bisect_left([measured for measured, _ in self.points], size), len(self.points) - 1)
        (small, less), (large, more) = self.points[index - 1 : index + 1]
        return less + (size - small) * (more - less) / (large - small)

    @staticmethod
    def of(samples: Mapping[int, float]) -> TransferTimes:
        """The times of measured sizes. A larger tensor takes no less time, whatever a disturbed measurement says."""
        sizes = sorted(samples)
        return TransferTimes(tuple(zip(sizes, accumulate((samples[size] for size in sizes), max), strict=True)))


Transfers = Mapping[tuple[str, str], TransferTimes]
"""By the devices that a tensor leaves and reaches."""

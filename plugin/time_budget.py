"""How a compilation keeps to the time that the user gives it: tuning stops early enough for what must follow.

A module has to be built, run and compared with ONNX Runtime however little time there is, so the shortest possible
compilation takes what that takes.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from sartor.front_job import Front

# Building the tuned and the stock network side by side, and running them, on two cores of 2.5 GHz or so.
_SECONDS = 3.0
_SECONDS_PER_NODE = 0.05
_BYTES_PER_SECOND = 40e6
# Timing layers in place takes this much of it besides.
_IN_PLACE = 0.5


@dataclass(frozen=True)
class TimeBudget:
    """When a compilation should be done.

    Attributes:
        end: by ``time.monotonic()``; infinite without a budget.
    """

    end: float = math.inf

    @staticmethod
    def of(seconds: float | None) -> TimeBudget:
        """A budget that begins now; None is none."""
        return TimeBudget() if seconds is None else TimeBudget(time.monotonic() + seconds)

    def tuning_deadline(self, front: Front) -> float | None:
        """When tuning has to stop, None if never: before what must follow, and what should."""
        return None if math.isinf(self.end) else self.end - (1 + _IN_PLACE) * _finishing_seconds(front)

    def allows_timing_in_place(self, front: Front) -> bool:
        """Whether there is time left for what is useful but not needed."""
        return time.monotonic() + _IN_PLACE * _finishing_seconds(front) < self.end


def _finishing_seconds(front: Front) -> float:
    """What building and checking takes, by the size of the model."""
    size = sum(front.weights[name].nbytes for name in front.weights)
    return _SECONDS + _SECONDS_PER_NODE * front.node_count + size / _BYTES_PER_SECOND

"""How a compilation keeps to the time that the user gives it: tuning stops early enough for what must follow.

A module has to be built, run and compared with ONNX Runtime however little time there is, so the shortest possible
compilation takes what that takes.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

from sartor.frontend.imported_model import Front

# Building the tuned and the stock network side by side, and running them, on two cores of 2.5 GHz or so.
_SECONDS = 3.0
_SECONDS_PER_NODE = 0.05
_BYTES_PER_SECOND = 40e6
# Timing layers in place takes this much of it besides.
_IN_PLACE = 0.2
# A network that is built later than the first is run too.
_BUILD_AND_RUN = 1.3

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimeBudget:
    """When a compilation should be done.

    Attributes:
        end: by ``time.monotonic()``; infinite without a budget.
        seconds: that there were; infinite without a budget.
    """

    end: float = math.inf
    seconds: float = math.inf

    @property
    def is_bounded(self) -> bool:
        """Whether there is a budget at all."""
        return math.isfinite(self.end)

    @staticmethod
    def of(seconds: float | None) -> TimeBudget:
        """A budget that begins now; None is none."""
        return TimeBudget() if seconds is None else TimeBudget(time.monotonic() + seconds, seconds)

    def tuning_deadline(self, front: Front) -> float | None:
        """When tuning has to stop, None if never: before what must follow, and what should.

        A warning says so if that is now.
        """
        if math.isinf(self.end):
            return None
        finishing = (1 + _IN_PLACE) * _finishing_seconds(front)
        now = time.monotonic()
        if self.end - finishing <= now:
            message = (
                "the time budget of %g s leaves nothing for tuning: importing the model took %.0f s, and building and "
                "checking it takes about %.0f s; a valid module is written, with guessed routines and not in time"
            )
            _LOG.warning(message, self.seconds, now - self.end + self.seconds, finishing)
        return self.end - finishing

    def allows_timing_in_place(self, front: Front) -> bool:
        """Whether there is time left to run the network under IREE's statistics, which is useful but not needed."""
        return self._allows(_IN_PLACE * _finishing_seconds(front))

    def allows_build(self, front: Front, taken: float | None) -> bool:
        """Whether there is time left for another network.

        Args:
            front: the model.
            taken: seconds that building one took before, None if none was built.
        """
        return self._allows(_finishing_seconds(front) if taken is None else _BUILD_AND_RUN * taken)

    def _allows(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.end


def _finishing_seconds(front: Front) -> float:
    """What building and checking takes, by the size of the model."""
    size = sum(front.weights[name].nbytes for name in front.weights)
    return _SECONDS + _SECONDS_PER_NODE * front.node_count + size / _BYTES_PER_SECOND

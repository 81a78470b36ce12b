"""Keeps a compilation within the user's time: tuning stops early enough for the steps that must follow.

The module is always built, run and compared with ONNX Runtime, so a compilation takes at least the time of these.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.workers.beside.stopping import NEVER, Stop

# Seconds of building and running the tuned and the stock network side by side, on two cores of about 2.5 GHz.
_SECONDS = 3.0
# Equal layers share their code, which takes most of the time.
_SECONDS_PER_KIND = 0.12
_SECONDS_PER_NODE = 0.005
_BYTES_PER_SECOND = 40e6
# Timing layers in the network takes this fraction of that time in addition.
_IN_NETWORK = 0.2
# A network that is built later is run too.
_BUILD_AND_RUN = 1.3


@dataclass(frozen=True)
class TimeBudget:
    """The time at which a compilation should end.

    Attributes:
        end: by ``time.monotonic()``; infinite without a budget.
        seconds: from when the budget was made; infinite without a budget.
        finishing: seconds that the steps after tuning took for an earlier plan; None if there was none.
        stop: by which the user ends it early.
    """

    end: float = math.inf
    seconds: float = math.inf
    finishing: float | None = None
    stop: Stop = NEVER

    @property
    def is_bounded(self) -> bool:
        """Whether there is a budget at all."""
        return math.isfinite(self.end)

    @property
    def patience(self) -> float:
        """Until when other compilations are waited for, by ``time.monotonic()``: not at all within a budget, but for
        measuring, as what must be done takes as long beside them.
        """
        return -math.inf if self.is_bounded else math.inf

    @property
    def is_spent(self) -> bool:
        """Whether the compilation should have ended by now."""
        return self.stop.is_requested or time.monotonic() >= self.end

    @staticmethod
    def of(seconds: float | None) -> TimeBudget:
        """A budget of ``seconds`` from now; None for no budget."""
        return TimeBudget() if seconds is None else TimeBudget(time.monotonic() + seconds, seconds)

    def spent(self) -> TimeBudget:
        """The same budget with nothing left: what is not known is predicted."""
        return replace(self, end=min(self.end, time.monotonic()))

    def leaves(self, seconds: float) -> bool:
        """Whether more than so many seconds are left."""
        return self._allows(seconds)

    def until_finished(self, seconds: float) -> TimeBudget:
        """The budget, after a plan was made: what follows tuning takes so many seconds."""
        return replace(self, finishing=seconds)

    def part(self, count: int) -> TimeBudget:
        """The budget of the first of ``count`` plans that share what is left of this one."""
        if not self.is_bounded or self.is_spent:
            return self
        left = (self.end - time.monotonic()) / count
        return replace(self, end=time.monotonic() + left)

    def tuning_deadline(self, imported: ImportedModel) -> float | None:
        """The time at which tuning has to stop, by ``time.monotonic()``; None without a budget.

        It leaves time for the steps that must follow and that should.
        """
        if math.isinf(self.end):
            return None
        known = self.finishing
        return self.end - ((1 + _IN_NETWORK) * _finishing_seconds(imported) if known is None else known)

    def allows_timing_in_network(self, imported: ImportedModel) -> bool:
        """Whether there is time left to run the network under IREE's statistics, which is useful but not needed."""
        return self._allows(_IN_NETWORK * _finishing_seconds(imported))

    def allows_build(self, imported: ImportedModel, taken: float | None, count: int = 1) -> bool:
        """Whether there is time left for other networks.

        Args:
            imported: the model.
            taken: seconds that building one took before, None if none was built.
            count: number of networks.
        """
        return self._allows(count * (_finishing_seconds(imported) if taken is None else _BUILD_AND_RUN * taken))

    def _allows(self, seconds: float) -> bool:
        return not self.stop.is_requested and time.monotonic() + seconds < self.end


def _finishing_seconds(imported: ImportedModel) -> float:
    """Estimated seconds of building and checking a network, by its kinds of layers and the size of the model."""
    kinds = len({layer.task.key for layer in imported.graph.layers})
    # Rounded forms of weights are stored beside them.
    names = {name for layer in imported.graph.all_layers() for name in layer.weights}
    size = sum(imported.weights[name].nbytes for name in names)
    nodes = _SECONDS_PER_NODE * imported.node_count
    return _SECONDS + _SECONDS_PER_KIND * kinds + nodes + size / _BYTES_PER_SECOND

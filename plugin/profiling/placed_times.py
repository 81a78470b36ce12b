"""Times of layers in networks that ran whole, fitted to what these took."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DeviceError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.profiling.layers.fitted_times import fitted_times
from sartor.profiling.profiler import Profiler
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Status

_LOG = logging.getLogger(__name__)
# Plans slower than the best by this ratio are not timed in the network, as their layers are hardly useful.
_NEAR = 1.3


@dataclass(frozen=True)
class PlacedTimes:
    """Times layers in networks.

    Attributes:
        profiler: runs whole networks.
        budget: the time budget.
        imported: the model.
    """

    profiler: Profiler
    budget: TimeBudget
    imported: ImportedModel

    def near(self, newest: Recipe, tried: Sequence[Recipe], seconds: float) -> list[Recipe]:
        """The newest plan, and if there is time plans nearly as fast as the best, which may have other variants."""
        if self.budget.is_bounded:
            return [newest]
        split = [recipe for recipe in tried if not recipe.plan.unsplit and recipe is not newest]
        runs = [(recipe, run) for recipe in split if (run := self.profiler.run_of(recipe)) and run.status is Status.OK]
        return [newest, *(recipe for recipe, run in runs if run.time < _NEAR * seconds)]

    def of(
        self, recipes: Sequence[Recipe], tables: Tables, passes: int | None = None
    ) -> tuple[InNetworkTimes, InNetworkTimes]:
        """Mean times of layers in networks that ran, each fitted to its network's time, and as they were measured in so
        many ``passes``, by default as many as networks to compare run in."""
        if not self.budget.allows_timing_in_network(self.imported):
            return InNetworkTimes(), InNetworkTimes()
        try:
            times = self.profiler.in_network(recipes, passes or self.profiler.passes)
        except (CompileError, DeviceError) as error:
            _LOG.warning("layers were not timed in place: %s", error)
            return InNetworkTimes(), InNetworkTimes()
        timed = [(recipe, times[recipe.digest]) for recipe in recipes if recipe.digest in times]
        fitted = InNetworkTimes.mean([self._fitted(measured, recipe, tables) for recipe, measured in timed])
        return fitted, InNetworkTimes.mean([measured for _, measured in timed])

    def _fitted(self, measured: InNetworkTimes, recipe: Recipe, tables: Tables) -> InNetworkTimes:
        run = self.profiler.run_of(recipe)
        return measured if run is None else fitted_times(measured, recipe, tables, run.time)

"""Selecting again by what layers take in place, until the plan that is shipped takes what was predicted.

Layers measured alone are off by a tenth or more of what they take in a network, and not all by the same. So the best
plan is run whole, IREE's statistics say what each of its layers took there, and the tables are corrected by that
before the next plan is selected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sartor.errors import DeviceError
from sartor.front_job import Front
from sartor.profiling import Profiled, Profiler
from sartor.recipe import Recipe, placed_plan, timed_plan
from sartor.tuning.in_place import InPlace, corrected
from sartor.tuning.plan import Plan
from sartor.tuning.tables import Tables

_LOG = logging.getLogger(__name__)
_ROUNDS = 2
# A plan must promise to be this much faster to be worth compiling and running.
_WORTHWHILE = 0.99
# A prediction that is further off is replaced by the sum of what was measured in place.
_CLOSE = 0.1

Select = Callable[[Tables], tuple[Sequence[Recipe], Tables]]
"""Selects the best plans by tables, first the best; also the tables, with the conversions that were measured for it."""


@dataclass
class Refiner:
    """Runs plans and selects anew.

    Attributes:
        front: the model.
        profiler: runs whole networks.
        select: selects plans.
    """

    front: Front
    profiler: Profiler
    select: Select

    def refine(self, tables: Tables, recipes: Sequence[Recipe]) -> tuple[Recipe, Profiled, Plan]:
        """The fastest correct network: what to build, how it ran, and its plan with all that is known.

        Args:
            tables: what was measured alone.
            recipes: what to run first: selected plans, and the unsplit model.

        Raises:
            CompileError: if none is right.
        """
        tried, newest = list(recipes), recipes[0]
        found = InPlace()
        profiled = self.profiler.profile(tried)
        for _ in range(_ROUNDS):
            if profiled.recipe.plan.unsplit:
                break
            found |= self._in_place(newest, profiled.seconds)
            selected, measured = self.select(corrected(tables, found))
            tables = replace(tables, adapts={**measured.adapts, **tables.adapts})
            newest = selected[0]
            if not self._is_worthwhile(newest, tried, profiled, corrected(tables, found)):
                break
            tried.append(newest)
            profiled = self.profiler.profile(tried)
        return self._told(profiled, tables, found)

    def _in_place(self, recipe: Recipe, seconds: float) -> InPlace:
        try:
            return self.profiler.in_place(recipe, seconds)
        except DeviceError as error:
            _LOG.warning("layers were not timed in place: %s", error)
            return InPlace()

    def _is_worthwhile(self, recipe: Recipe, tried: Sequence[Recipe], profiled: Profiled, tables: Tables) -> bool:
        """Whether a plan is new, and promises to be faster than the best so far by the same tables."""
        if any(recipe.is_same_as(each) for each in tried):
            return False
        best, promised = timed_plan(profiled.recipe, self.front, tables).predicted, recipe.plan.predicted
        return best is None or promised is None or promised < _WORTHWHILE * best

    def _told(self, profiled: Profiled, tables: Tables, found: InPlace) -> tuple[Recipe, Profiled, Plan]:
        recipe = profiled.recipe
        if not recipe.plan.unsplit:
            found |= self._in_place(recipe, profiled.seconds)
            if abs((recipe.plan.predicted or 0.0) / profiled.seconds - 1) > _CLOSE:
                # The module carries the prediction, which should hold.
                recipe = replace(recipe, plan=timed_plan(recipe, self.front, corrected(tables, found)))
        plan = replace(recipe.plan, measured=profiled.seconds, baseline=profiled.baseline)
        return recipe, profiled, placed_plan(plan, found)

"""Limits made tighter where a plan that keeps to them by the tables does not when it runs.

The tables say what layers err by alone and what a memory planner needs at least. What a network makes of its layers'
errors, and how IREE lays out its memory, shows when it is run.
"""

from __future__ import annotations

import math

from sartor.config import CompileConfig
from sartor.planning.recipe import Recipe
from sartor.tuning.errors.error_sum import moved
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import Limits, Quantity

# The sum of layers' errors is no more than a model of what they do.
_MARGIN = 0.9


def tightened(limits: Limits, recipe: Recipe, run: Measurement | None, config: CompileConfig) -> Limits | None:
    """Limits under which a plan is selected that may keep to the user's when it runs; None if this one did.

    None also where no limit would help: the plan crashed, or its layers are as exact as candidate 0.
    """
    if run is None or recipe.plan.unsplit:
        return None
    if run.status is Status.WRONG_RESULT:
        return _more_exact(limits, recipe, run, config)
    if run.status is Status.OK and config.memory_limit is not None and run.packed_bytes > config.memory_limit:
        excess = run.packed_bytes - config.memory_limit
        return Limits(max(recipe.needed[Quantity.MEMORY] - excess, 0.0), limits.error)
    return None


def _more_exact(limits: Limits, recipe: Recipe, run: Measurement, config: CompileConfig) -> Limits | None:
    estimated = recipe.needed.get(Quantity.ERROR, 0.0)
    if not estimated or run.error is None or not math.isfinite(run.error):
        return None
    ratio = _MARGIN * min(config.allowed_error / run.error, 1.0)
    return Limits(limits.memory, moved(estimated, config.error_measure, ratio))

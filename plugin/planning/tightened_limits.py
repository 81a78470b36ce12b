"""Limits made tighter where a plan that keeps to them by the tables does not when it runs.

The tables say what layers err by alone and what a memory planner needs at least. What a network makes of its layers'
errors, and how IREE lays out its memory, shows when it is run.
"""

from __future__ import annotations

import math

from sartor.planning.recipe import Recipe
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import Limits, Quantity


def tightened(
    limits: Limits, recipe: Recipe, run: Measurement | None, memory_limit: int | None, budget: ErrorBudget
) -> Limits | None:
    """Limits under which a plan is selected that may keep to the user's when it runs; None if this one did.

    None also where no limit would help: the plan crashed, or its layers are as exact as candidate 0.

    Args:
        limits: under which the plan was selected.
        recipe: the plan.
        run: how it ran; None if it did not.
        memory_limit: the user's.
        budget: what outputs may be off by.
    """
    if run is None or recipe.plan.unsplit:
        return None
    if run.status is Status.WRONG_RESULT:
        return _more_exact(limits, recipe, run, budget)
    if run.status is Status.OK and memory_limit is not None and run.packed_bytes > memory_limit:
        excess = run.packed_bytes - memory_limit
        return Limits(max(recipe.needed[Quantity.MEMORY] - excess, 0.0), limits.error)
    return None


def _more_exact(limits: Limits, recipe: Recipe, run: Measurement, budget: ErrorBudget) -> Limits | None:
    estimated = recipe.needed.get(Quantity.ERROR, 0.0)
    if not estimated or run.error is None or not math.isfinite(run.error):
        return None
    return Limits(limits.memory, budget.sum_after_run(estimated, run.error))

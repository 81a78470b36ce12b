"""Tightens limits after a plan that keeps to them by the tables exceeded them when it ran.

The tables contain the errors of single layers, and the least memory of a memory planner. The error of the whole
network, and the memory that IREE allocates, are known only after a run.
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
    """Limits under which a plan is selected that may keep to the user's limits when it runs; None if this plan did.

    None also if no limit would help: the plan crashed, or its layers are as exact as candidate 0.

    Args:
        limits: under which the plan was selected.
        recipe: the plan.
        run: its run; None if it did not run.
        memory_limit: the user's limit in bytes, or None.
        budget: the error budget.
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

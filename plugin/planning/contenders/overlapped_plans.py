"""Selects plans for the first inference that the sum of reading and executing hides.

With the objective cold the tables minimise the sum of what a plan executes and what it reads. A session overlaps both
(NNV12, section 3.3, where the longer of the two queues decides): its first inference takes about as long as the longer.
That is no sum over layers, so no solver minimises it; but the plans between the fastest and the one that reads least
are found, and of these the fastest, and the one whose longer part is the shortest, run as whole networks too. What is
shipped is decided by first inferences that are timed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)
_TRADED = (Quantity.LATENCY, Quantity.COLD)


def overlapped_plans(
    selector: PlanSelector, tables: Tables, selected: Sequence[Recipe], limits: Limits
) -> list[Recipe]:
    """The fastest plan, and the one with the shortest overlapped first inference, unless they were selected.

    Args:
        selector: selects for the first inference; with another objective there is nothing to add.
        tables: costs.
        selected: the best plans by the sum.
        limits: on all plans.
    """
    if selector.policy.objective is not Objective.COLD or tables.loading is None:
        return []
    policy = replace(selector.policy, quantities=tuple(dict.fromkeys((*selector.policy.quantities, *_TRADED))))
    wide = replace(selector, solver=replace(selector.solver, policy=policy))
    try:
        front, _ = wide.plans_on_front(tables, limits, _TRADED)
    except InfeasibleError as error:
        _LOG.info("there are no other plans for the first inference: %s", error)
        return []
    plans = [recipe for recipe, _ in front]
    if not plans:
        return []
    best = [min(plans, key=lambda each: each.needed[Quantity.LATENCY]), min(plans, key=overlapped_seconds)]
    found: list[Recipe] = []
    for each in best:
        if _choices(each) not in map(_choices, [*selected, *found]):
            found.append(each)
    return found


def _choices(recipe: Recipe) -> dict[str, str]:
    return {layer: variant.descriptor for layer, variant in recipe.variants.items()}


def overlapped_seconds(recipe: Recipe) -> float:
    """Predicted seconds of a first inference that reads while it executes."""
    executing = recipe.needed[Quantity.LATENCY]
    return max(executing, recipe.needed[Quantity.COLD] - executing)

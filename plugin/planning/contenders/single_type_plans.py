"""Selects the best plans in fewer types than the user allows, which run as whole networks beside the mixture of all.

By the tables the mixture is the best, because a plan in one type is a special mixture. But tables have errors of some
percent, and types often differ by less. So the mixture is shipped only if it is faster than those of these plans that
come near. The times of their layers in the network go into the tables by which the next mixture is selected (SoftNeuro,
section III-D: integrated profiling). Plans in one type are selected again too, as if the network were compiled for that
type alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe
from sartor.policies import PlanPolicy, Precision
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import Limits

_LOG = logging.getLogger(__name__)
# Plans predicted to be slower than the mixture by more than this ratio are not run; the tables' errors are smaller.
_NEAR = 1.2


def single_precision_plans(
    selector: PlanSelector, tables: Tables, mixed: Sequence[Recipe], limits: Limits
) -> tuple[list[Recipe], Tables]:
    """The best plan in f32, and the best in each narrower type beside f32, of those that come near the best mixture.

    Args:
        selector: selects in all types.
        tables: costs.
        mixed: plans that it selected, best first.
        limits: on all plans; the bound on the sum of squared errors is found again for each type.

    Returns:
        Plans that are not among ``mixed``, and the tables with conversions that were measured for them.
    """
    recipes: list[Recipe] = []
    for precision in _within(selector.policy):
        try:
            (best, *_), tables = selector.in_precision(precision).select(tables, replace(limits, error=None))
        except InfeasibleError as error:
            _LOG.info("there is no plan in %s: %s", precision, error)
            continue
        if _seconds(best) <= _NEAR * _seconds(mixed[0]) and not any(map(best.is_same_as, [*mixed, *recipes])):
            recipes.append(best)
    return recipes, tables


def _within(policy: PlanPolicy) -> list[Precision]:
    """The precisions that allow fewer types and differ on the target."""
    whole = set(policy.precision.types_on(policy.target))
    # What 8 bits for filters alone, or for some layers, gain, 8 bits for all may gain as well, where that is allowed.
    of_weights = policy.precision.computes_in_f32
    implied = Precision.INT8 if of_weights else Precision.INT8_WEIGHTS
    parts = {
        precision: set(precision.types_on(policy.target))
        for precision in Precision
        if set(precision.types) < set(policy.precision.types)
        and not precision.is_permitted
        and precision is not implied
    }
    return [precision for precision, types in parts.items() if types < whole and (types or precision is Precision.F32)]


def _seconds(recipe: Recipe) -> float:
    return recipe.plan.predicted or 0.0

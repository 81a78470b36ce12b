"""The best plans in fewer types than the user allows, which are run whole beside the mixture of all.

By the tables the mixture is the best, for what is a plan in one type is a mixture, too. But tables are off by some
percent, and which of several types is fastest for a layer often is a matter of less. So the mixture is shipped only if
it is faster than those of these plans that come near, and what their layers take in the network goes into the tables
that the next mixture is selected by (SoftNeuro, section III-D: integrated profiling). So are the next ones of these
plans, as if the network were compiled for one type alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sartor.config import Precision
from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import Limits

_LOG = logging.getLogger(__name__)
# By the tables: they are off by less than this.
_NEAR = 1.2


def single_precision_plans(
    selector: PlanSelector, tables: Tables, mixed: Sequence[Recipe], limits: Limits
) -> tuple[list[Recipe], Tables]:
    """The best plan in f32 and in each single type besides it that comes near the best mixture.

    Args:
        selector: selects in all types.
        tables: costs.
        mixed: what it selected, best first.
        limits: that plans must keep to; what is allowed to err is learned anew in each type.

    Returns:
        Plans that are not among ``mixed``, and the tables with what was measured for them.
    """
    found: list[Recipe] = []
    for precision in _within(selector.precision):
        try:
            (best, *_), tables = selector.in_precision(precision).select(tables, replace(limits, error=None))
        except InfeasibleError as error:
            _LOG.info("there is no plan in %s: %s", precision, error)
            continue
        if _seconds(best) <= _NEAR * _seconds(mixed[0]) and not any(map(best.is_same_as, [*mixed, *found])):
            found.append(best)
    return found, tables


def _within(precision: Precision) -> list[Precision]:
    """Those that allow less."""
    return [each for each in Precision if set(each.types) < set(precision.types)]


def _seconds(recipe: Recipe) -> float:
    return recipe.plan.predicted or 0.0

"""Selects the best plan for the CPU alone, which runs as a whole network beside a plan for several devices.

By the tables the latter is faster. But its transfers and the GPU's short dispatches are measured less exactly than the
layers on the CPU, so it is shipped only if it is faster as a whole network too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import Limits

_LOG = logging.getLogger(__name__)


def home_plans(
    selector: PlanSelector, tables: Tables, selected: Sequence[Recipe], limits: Limits
) -> tuple[list[Recipe], Tables]:
    """The best plan on the device of the network's inputs and outputs, unless a plan that was selected is on it alone.

    Args:
        selector: selects for all devices.
        tables: costs.
        selected: plans for all devices.
        limits: on all plans.

    Returns:
        At most one plan, and the tables with conversions that were measured for it.
    """
    home = selector.policy.target.device
    if any(each.devices == (home,) for each in selected):
        return [], tables
    try:
        (best, *_), tables = selector.on_device(home).select(tables, limits)
    except InfeasibleError as error:
        _LOG.info("there is no plan on %s alone: %s", home, error)
        return [], tables
    return [best], tables

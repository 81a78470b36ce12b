"""Selects plans for a first inference whose reading and executing overlap.

With the objective cold the tables minimise the sum of what a plan executes and what it reads, as on one core. A session
overlaps both (NNV12, section 3.3): its first inference takes as long as a pipeline of the two queues, whose time
``tuning/selection/overlap`` computes and minimises exactly. How far both overlap depends on the disk, on what the page
cache holds and on other programs. So the plan with the shortest pipeline and the one that executes fastest, the best
where all is in memory, run as whole networks beside that with the least sum; what is shipped is decided by first
inferences that are timed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sartor.errors import InfeasibleError
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import Selected
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits

_LOG = logging.getLogger(__name__)


def overlapped_plans(selector: PlanSelector, tables: Tables, selected: Sequence[Recipe], limits: Limits) -> Selected:
    """The plan with the shortest overlapped first inference, and the fastest, unless they were selected.

    Args:
        selector: selects for the first inference; with another objective there is nothing to add.
        tables: costs.
        selected: the best plans by the sum.
        limits: on all plans.

    Returns:
        The plans, and the tables with what was measured for them.
    """
    if selector.policy.objective is not Objective.COLD or tables.loading is None:
        return [], tables
    try:
        plans, tables = selector.overlapped(tables, limits)
    except InfeasibleError as error:
        _LOG.info("there are no other plans for the first inference: %s", error)
        return [], tables
    found: list[Recipe] = []
    for plan in plans:
        if not any(plan.is_same_as(other) for other in [*selected, *found]):
            found.append(plan)
    return found, tables

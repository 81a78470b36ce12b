"""Keeping every plan of a front within the error that the user allows.

Simulated errors say which plans do. Those that do not make way for the front within a smaller sum of contributions, so
that what is shown in the end may be asked for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sartor.errors import InfeasibleError
from sartor.planning.error_budget import ErrorBudget
from sartor.planning.recipe import Recipe
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)
_ROUNDS = 4

Found = tuple[list[Recipe], bool]
"""Plans, and whether there are no others on their front."""

Judged = list[tuple[Recipe, float]]
"""Plans with their simulated errors."""


def front_within(
    budget: ErrorBudget,
    tables: Tables,
    limits: Limits,
    quantities: tuple[Quantity, Quantity],
    find: Callable[[Limits], Found],
) -> tuple[Judged, bool]:
    """The plans that keep to the budget and are not dominated by others that do, and whether there are no others.

    Args:
        budget: simulates plans.
        tables: by which it does.
        limits: what they must keep to besides.
        quantities: that are traded for each other.
        find: the front within limits.

    Raises:
        InfeasibleError: if no plan keeps to ``limits``.
    """
    kept: Judged = []
    bound, complete = budget.bound, True
    for done in range(_ROUNDS):
        try:
            recipes, is_all = find(replace(limits, error=bound))
        except InfeasibleError:
            if not done:
                raise
            break
        judged = [(each, budget.simulate(each, tables)) for each in recipes]
        beyond = [pair for pair in judged if not budget.allows(pair[1])]
        kept += [pair for pair in judged if budget.allows(pair[1])]
        complete = complete and is_all and not beyond
        if not beyond:
            break
        _LOG.info("%d of %d plans of the front within %s err by too much", len(beyond), len(judged), bound)
        finite = [pair for pair in beyond if math.isfinite(pair[1])]
        if not finite:
            break
        bound = min(budget.sum_allowed(*pair) for pair in finite)
    return _undominated(kept, quantities), complete


def _undominated(judged: Sequence[tuple[Recipe, float]], quantities: tuple[Quantity, Quantity]) -> Judged:
    """Those that are better than all others in one of the two quantities, the least of the first before the others."""
    first, second = quantities
    found: Judged = []
    for pair in sorted(judged, key=lambda each: (each[0].needed[first], each[0].needed[second])):
        if not found or pair[0].needed[second] < found[-1][0].needed[second]:
            found.append(pair)
    return found

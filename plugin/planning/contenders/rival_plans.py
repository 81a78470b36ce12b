"""Selects plans that the tables cannot tell from the best one, which run as whole networks beside it.

SoftNeuro (section III-D) profiles patterns of routines whole, because the times of single routines do not add up. Here
the tables choose the patterns: a plan is a rival if it would be faster than the best one by enough to matter, were the
difference of their times wrong by one standard deviation.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.planning.plan_selector import WORTHWHILE, PlanSelector
from sartor.planning.recipe import Recipe, timed_plan
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.table_errors import CONVERSION, Piece, TableErrors
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits
from sartor.tuning.selection.solve import EXACT

_LOG = logging.getLogger(__name__)
# Plans that are found for each one that may run, as some ran before, and some promise less by the errors of their own
# layers.
_ASKED = 4


@dataclass(frozen=True)
class Incumbent:
    """The best plan so far, and what is known when rivals are selected.

    Attributes:
        recipe: the plan.
        ratio: of its network's time to the sum of its layers' times in the network.
        tried: all plans that ran.
        found: times in networks, by which plans are selected.
        seen: these times before they were fitted to the networks' times, which tell how much they err.
        limits: on all plans.
    """

    recipe: Recipe
    ratio: float
    tried: Sequence[Recipe]
    found: InNetworkTimes
    seen: InNetworkTimes
    limits: Limits


def rival_plans(selector: PlanSelector, tables: Tables, incumbent: Incumbent) -> tuple[list[Recipe], Tables]:
    """The rivals of the best plan that did not run yet, most promising first, one less than plans are wanted in all.

    The returned tables contain newly measured conversions, with times measured alone.
    """
    policy, errors = selector.policy, TableErrors.of(tables, incumbent.seen, incumbent.ratio)
    wanted = policy.plans - 1 if policy.objective is Objective.LATENCY and policy.selector in EXACT else 0
    if not wanted or not errors.of_a_swap:
        return [], tables
    placed = corrected(tables, incumbent.found)
    best = timed_plan(incumbent.recipe, placed)
    seconds = best.predicted or 0.0
    least = (1 - WORTHWHILE) * seconds
    known, excess = errors.of_a_swap, errors.of_a_swap * seconds
    recipes, placed = selector.different(placed, incumbent.limits, _ASKED * policy.plans, least / known, excess)
    new = [recipe for recipe in recipes if not any(map(recipe.is_same_as, incumbent.tried))]
    promises = {rival.digest: _gain(best, rival.plan, errors) for rival in new}
    rivals = [rival for rival in new if promises[rival.digest] >= least and selector.keeps_budget(rival, placed)]
    rivals = sorted(rivals, key=lambda rival: promises[rival.digest], reverse=True)[:wanted]
    _LOG.info("%d of %d plans may be the fastest by what the tables err (%.1f%%)", len(rivals), len(new), 100 * known)
    return rivals, tables.with_adapts(placed)


def _gain(best: Plan, rival: Plan, errors: TableErrors) -> float:
    """Seconds by which a rival is faster than the best plan if their difference errs by one standard deviation."""
    return (best.predicted or 0.0) - (rival.predicted or 0.0) + errors.of_difference(_pieces(best), _pieces(rival))


def _pieces(plan: Plan) -> dict[Piece, float]:
    """Seconds of each piece of a plan, which may occur several times."""
    total = Counter[Piece]()
    pieces = [((layer.task, layer.variant), layer.seconds) for layer in plan.layers]
    for piece, seconds in (*pieces, *(((CONVERSION, adapt.symbol), adapt.seconds) for adapt in plan.adapts)):
        total[piece] += seconds or 0.0  # type: ignore[assignment]
    return dict(total)

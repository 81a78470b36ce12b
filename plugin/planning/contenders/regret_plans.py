"""Selects the plan with the least regret over the sizes of calls, and the best plan for each of these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import Selected
from sartor.planning.recipe import Recipe, timed_plan
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.limits import Limits
from sartor.tuning.selection.regret import least_regret

_LOG = logging.getLogger(__name__)


def regret_plans(selector: PlanSelector, tables: Tables, limits: Limits) -> Selected:
    """The plan with the least regret by the tables, then the best plans for each call, by which it is judged.

    Args:
        selector: knows the times with the sizes of each call.
        tables: costs; what failed in them is in no plan.
        limits: on all plans.

    Returns:
        The plans, each once, and the tables with what was measured for them.

    Raises:
        InfeasibleError: if there is none.
    """
    adapts = tables
    sized = [of_call(tables, measured) for measured in selector.by_call]

    def find(weights: Sequence[float]) -> tuple[Recipe, list[float]]:
        nonlocal adapts
        (best, *_), adapts = selector.select(weighted(adapts, sized, weights), limits)
        return best, [timed_plan(best, own.with_adapts(adapts)).predicted or 0.0 for own in sized]

    least = least_regret(find, len(sized))
    _LOG.info("by the tables the least regret is %.3f, and no plan has less than %.3f", least.regret, least.bound)
    tables = tables.with_adapts(adapts)
    plans: list[Recipe] = []
    for plan in (least.plan, *least.singles):
        if not any(plan.is_same_as(other) for other in plans):
            plans.append(replace(plan, plan=timed_plan(plan, tables)))
    return plans, tables


def of_call(tables: Tables, measured: Mapping[str, Mapping[str, Measurement]]) -> Tables:
    """The tables with the times of one call; what was not timed with its sizes takes as long as in the mean."""
    own = replace(tables, measured=measured)
    return _timed(tables, lambda key, name, mean: own.seconds(key, name) or mean)


def weighted(tables: Tables, sized: Sequence[Tables], weights: Sequence[float]) -> Tables:
    """The tables with the sum of each variant's times in several others, each multiplied by its weight."""

    def summed(key: str, name: str, mean: float) -> float:
        seconds = [own.seconds(key, name) or mean for own in sized]
        return sum(weight * own for weight, own in zip(weights, seconds, strict=True))

    return _timed(tables, summed)


def _timed(tables: Tables, seconds: Callable[[str, str, float], float]) -> Tables:
    """The tables with other times of the variants that work, given their tasks, names and times."""

    def timed(key: str, name: str, known: Measurement) -> Measurement:
        mean = tables.seconds(key, name)
        taken = () if mean is None else (seconds(key, name, mean),)
        return replace(known, samples=taken, baseline_samples=()) if taken else known

    measured = {
        key: {name: timed(key, name, known) for name, known in tables.measured.get(key, {}).items()}
        for key in tables.variants
    }
    return replace(tables, measured={**tables.measured, **measured})
